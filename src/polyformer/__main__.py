"""The entry point: ``python -m polyformer`` is the command line, also for each worker of ``torchrun``."""

from __future__ import annotations

import os
import sys

from polyformer.interrupts import end_at_once, listen, stop_listening

__all__ = ["run"]


def run() -> None:
    """The command line as a program of its own: Ctrl-C is answered before anything heavy is loaded."""
    listen()
    try:
        from polyformer.cli import main

        main()
    except KeyboardInterrupt:
        end_at_once()
    except SystemExit as end:
        if os.environ.get("WORLD_SIZE", "1") != "1":
            _end_worker(end.code)
        raise
    finally:
        stop_listening()


def _end_worker(code: object) -> None:
    """End this process without taking the interpreter apart, which gloo's threads may not survive.

    A thread of the process group may still hold the tensors of the last exchange. It needs the interpreter to let them
    go, and where that is ending, the thread aborts the whole process: a finished run would be reported as failed.
    """
    import contextlib

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody listens any more
            stream.flush()
    os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    run()
