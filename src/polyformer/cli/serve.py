from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import DataRoot, StoredTokens, TrainedRun, dataclass_options

__all__ = ["serve"]


@dataclass(frozen=True)
class ServeOptions:
    """Options of `polyformer serve`."""

    run: TrainedRun
    graph: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Another graph with the same features. [default: the graph of the run]"),
    ] = None
    tokens: StoredTokens = None
    host: Annotated[str, typer.Option(help="Address to listen on; any other than this machine needs --token.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8750
    token: Annotated[
        str | None,
        typer.Option(
            envvar="POLYFORMER_TOKEN",
            help="Requests must carry this as `Authorization: Bearer TOKEN`.",
        ),
    ] = None
    writable: Annotated[
        bool,
        typer.Option("--writable", help="Let POST /updates change the graph directory, and the tokens with it."),
    ] = False
    tolerance: Annotated[
        float, typer.Option(help="With --writable: how far tokens may be from exact ones; see `polyformer tokens`.")
    ] = 1e-3
    check: Annotated[bool, typer.Option("--check", help="Open everything, say what would be served, and stop.")] = False
    data_root: DataRoot = None


@dataclass_options
def serve(options: ServeOptions) -> None:
    """Answer over HTTP: predictions and filters of nodes, by your own node ids.

    `http://127.0.0.1:8750/docs` lists all addresses. Needs the extra `serve`.

    Examples:

    - `polyformer serve runs/my-run`

    - `polyformer serve runs/my-run --tokens tokens/` — answers from stored tokens, for large graphs

    - `polyformer serve runs/my-run --tokens tokens/ --writable` — the graph can be changed by requests

    - `POLYFORMER_TOKEN=secret polyformer serve runs/my-run --host 0.0.0.0` — other machines may ask, with the token
    """
    _require_packages()
    _serve(options)


def _require_packages() -> None:
    """Refuse to go on without the packages of the extra ``serve``."""
    try:
        import orjson  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        from polyformer.errors import MissingDependency

        raise MissingDependency(
            "'serve' needs uvicorn, starlette and orjson. Install them with: pip install 'polyformer[serve]'"
        ) from None


def _serve(options: ServeOptions) -> None:
    """Open everything, say where it is served, and answer until the process is told to stop."""
    import gc
    import sys
    import traceback

    from polyformer.server.app import make_app
    from polyformer.server.limits import Limits
    from polyformer.server.listening import bind_port, make_server
    from polyformer.server.service import Service

    def complain(error: BaseException) -> None:
        traceback.print_exception(error, file=sys.stderr)

    display = Display()
    limits = Limits()
    listening = bind_port(options.host, options.port, options.token)
    with display.reporter() as reporter:
        root = None if options.data_root is None else str(options.data_root)
        service = Service(
            options.run, options.graph, options.tokens, root, options.writable, options.tolerance, reporter
        )
    about = service.about()
    address = listening.getsockname()
    name = f"[{address[0]}]" if ":" in address[0] else address[0]
    root_page = f"http://{name}:{address[1]}"
    display.say(
        f"{about['model']} on {about['nodes']:,} nodes and {about['edges']:,} edges, version {about['version']}"
    )
    display.say(f"serving {root_page}, its addresses: {root_page}/docs, the explorer: {root_page}/explorer")
    sys.stdout.flush()  # whoever reads this line from a file or a pipe starts asking when it is there
    sys.setswitchinterval(0.0005)  # while an update is applied, a request waits this long for its turn, not 5 ms
    gc.freeze()  # what lives as long as the process need not be looked at when an old state is cleared away
    try:
        server = make_server(make_app(service, limits, options.token, complain), limits)
        if not options.check:
            server.run(sockets=[listening])
    finally:
        listening.close()
        service.close()
