"""Token directories that are killed, shared, read-only, full or damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from polyformer.cli import main
from polyformer.errors import FileCorrupt, InvalidData, OutOfResources, OutputBusy, OutputExists
from polyformer.graph import Graph
from polyformer.propagation.disk import DiskEngine
from polyformer.tokens import open_tokens, write_tokens
from tests.cli.test_cli import run
from tests.listener import Listener
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow

ORDER = 3
NARROW = (6 << 20) + 32_000  # memory for blocks of 8 columns


def write_slowly(graph: Path, out: Path, memory: int, basis: str) -> None:
    engine = DiskEngine(memory=memory)
    nodes = range(5, 300)
    slow = Listener(on_share=lambda _: time.sleep(0.002))
    write_tokens(Graph.load(graph), out, basis, 3, nodes=nodes, engine=engine, reporter=slow)


def small_graph() -> Graph:
    random = np.random.default_rng(0)
    return Graph(random.integers(0, 400, (2, 1500)), random.standard_normal((400, 50)))


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


@pytest.mark.parametrize("basis", ["bernstein", "optimal"])
def test_killed_at_random_moments_and_resumed(tmp_path: Path, basis: str) -> None:
    """Kill the writer twenty times and more; every result has the bytes of an uninterrupted write."""
    small_graph().save(tmp_path / "graph")
    memory = {"bernstein": NARROW, "optimal": 1 << 25}[basis]  # blocks of 8 columns
    write_tokens(Graph.load(tmp_path / "graph"), tmp_path / "whole", basis, ORDER, nodes=range(5, 300), engine="disk")
    out = tmp_path / "tokens"
    moments, kills = random.Random(0), 0
    while kills < 20:
        while not out.exists():
            with WarmProcess(tmp_path / "graph", out, memory, basis, function=write_slowly) as process:
                time.sleep(moments.uniform(0.0, 0.08 * 1.05**kills))  # ever longer: a slow disk gets on too
                process.signal(signal.SIGKILL)
                process.wait()
            kills += 1
        (tmp_path / ".tokens.partial.lock").unlink(missing_ok=True)  # left if the kill came after all was done
        assert same_files(out, tmp_path / "whole")
        shutil.rmtree(out)


def interrupt_after(share: float):
    def progress(done: float) -> None:
        if done >= share:
            raise KeyboardInterrupt

    return Listener(on_share=progress)


def start(tmp_path: Path) -> None:
    """Half of the tokens, then an interruption."""
    with pytest.raises(KeyboardInterrupt):
        write_tokens(
            small_graph(),
            tmp_path / "t",
            "chebyshev",
            ORDER,
            engine=DiskEngine(NARROW),
            reporter=interrupt_after(0.5),
        )


def test_finished_blocks_are_not_computed_again(tmp_path: Path) -> None:
    start(tmp_path)
    done = len(list((tmp_path / ".t.partial").glob("block-*")))
    shares: list[float] = []
    engine = DiskEngine(2 * NARROW)  # other blocks than before
    write_tokens(
        small_graph(), tmp_path / "t", "chebyshev", ORDER, engine=engine, reporter=Listener(on_share=shares.append)
    )
    assert done >= 3
    assert shares[0] == pytest.approx(done * 8 / 50)  # the block that was interrupted is gone, and repeated
    write_tokens(small_graph(), tmp_path / "whole", "chebyshev", ORDER, engine="disk")
    assert same_files(tmp_path / "t", tmp_path / "whole")


@pytest.mark.parametrize("engine", ["memory", "disk"])
def test_tokens_are_on_the_disk_before_their_directory_appears(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    flush, rename = os.fsync, Path.rename

    def recorded(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        flush(handle)

    def checked(source: Path, target: Path) -> Path:
        last_write = (source / "tokens.npy").stat().st_mtime_ns
        assert "tokens.npy" in flushed[-4:], f"written at {last_write}, flushed: {flushed}"
        assert flushed[-1] == ".t.partial"
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(Path, "rename", checked)
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine=engine)
    assert flushed[-1] == tmp_path.name


@pytest.mark.parametrize("damage", ["truncated", "swapped", "missing"])
def test_damaged_blocks_are_computed_again(tmp_path: Path, damage: str) -> None:
    start(tmp_path)
    first, second = sorted((tmp_path / ".t.partial").glob("block-*"))[:2]
    if damage == "truncated":
        first.write_bytes(first.read_bytes()[:-10])
    elif damage == "swapped":
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    else:
        first.unlink()
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    write_tokens(small_graph(), tmp_path / "whole", "chebyshev", ORDER, engine="memory")
    assert np.allclose(open_tokens(tmp_path / "t")[:], open_tokens(tmp_path / "whole")[:], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 2}, "unfinished tokens of another job: its order is 3, not 2"),
        ({"self_loops": True}, "its operator is"),
        ({"dtype": "float16"}, "its dtype is 'float32'"),
        ({"nodes": [1, 2]}, "unfinished tokens of another job"),
        ({"basis": "optimal"}, "its stored is 'chebyshev', not 'optimal'"),
        ({"graph": Graph([[0, 1], [1, 2]], np.ones((3, 50)))}, "its graph is"),
    ],
)
def test_another_job_is_refused(tmp_path: Path, changes: dict, message: str) -> None:
    start(tmp_path)
    arguments = {"graph": small_graph(), "basis": "chebyshev", "order": ORDER, "engine": "disk"} | changes
    with pytest.raises(OutputExists, match=message):
        write_tokens(directory=tmp_path / "t", **arguments)


def test_a_job_that_finished_no_block_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_tokens(small_graph(), tmp_path / "t", "optimal", ORDER, engine="disk", reporter=interrupt_after(0.0))
    assert list(tmp_path.iterdir()) == []
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", 7)
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    shutil.rmtree(tmp_path / "t")
    job = {key: manifest[key] for key in manifest if key not in ("complete", "samples", "files", "checksum")}
    folder = tmp_path / ".t.partial"  # what a kill before the first block leaves
    folder.mkdir()
    (folder / "progress.json").write_text(json.dumps({"job": job, "blocks": []}))
    (folder / "block-000000-000008").write_bytes(b"cut off")
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("left", [["progress.json"], []])
def test_killed_while_blocks_are_removed(tmp_path: Path, left: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is whole but not renamed: the same job renames it, another is refused though it lists no block."""
    write_tokens(small_graph(), tmp_path / "whole", "chebyshev", ORDER, engine="disk")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polyformer.stores.writer.rename_directory", stop)
    with pytest.raises(KeyboardInterrupt):
        write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    monkeypatch.undo()
    for name in left:
        (tmp_path / ".t.partial" / name).write_text("{}")
    with pytest.raises(OutputExists, match="its order is 3, not 2"):
        write_tokens(small_graph(), tmp_path / "t", "chebyshev", 2, engine="disk")
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk", reporter=interrupt_after(0.0))
    assert same_files(tmp_path / "t", tmp_path / "whole")


def test_half_put_together_rows_are_written_again(tmp_path: Path) -> None:
    start(tmp_path)
    (tmp_path / ".t.partial" / "tokens.npy").write_bytes(bytes(1000))
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    write_tokens(small_graph(), tmp_path / "whole", "chebyshev", ORDER, engine="disk")
    assert same_files(tmp_path / "t", tmp_path / "whole")


@pytest.mark.parametrize("content", ["[]", '{"job": 3}'])
def test_damaged_list_of_blocks(tmp_path: Path, content: str) -> None:
    start(tmp_path)
    (tmp_path / ".t.partial" / "progress.json").write_text(content)
    with pytest.raises(FileCorrupt, match=r"holds no unfinished tokens of this version\. Remove it"):
        write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutOfResources, match=r"Could not write tokens to .* Choose a place that can be written"):
        write_tokens(small_graph(), tmp_path / "file" / "t", "chebyshev", ORDER, engine="disk")
    if Path("/proc/self").is_dir():
        with pytest.raises(OutOfResources, match="Could not write tokens to '/proc/t'"):
            write_tokens(small_graph(), Path("/proc/t"), "chebyshev", ORDER, engine="disk")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only directories too")
def test_read_only_output(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OutOfResources, match="Permission denied"):
            write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    finally:
        tmp_path.chmod(0o755)


def test_second_process_is_refused(tmp_path: Path) -> None:
    def again(_: float) -> None:
        with pytest.raises(OutputBusy, match="Another process is writing tokens"):
            write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")

    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk", reporter=Listener(on_share=again))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    with pytest.raises(OutputExists, match="already exists"):
        write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")


def test_float16_halves_the_file_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    write_tokens(small_graph(), tmp_path / "half", "chebyshev", ORDER, engine="disk", dtype="float16")
    write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    assert (tmp_path / "half" / "tokens.npy").stat().st_size == 128 + 400 * 4 * 50 * 2
    half, single = open_tokens(tmp_path / "half", basis="monomial"), open_tokens(tmp_path / "t", basis="monomial")
    assert half[:].dtype == single[:].dtype
    assert np.allclose(half[:], single[:], atol=0.02)
    large = small_graph().with_features(np.full((400, 2), 1e5))
    with pytest.raises(InvalidData, match=r"order 0 in column 0 is 100000, but float16 holds at most 65504"):
        write_tokens(large, tmp_path / "large", "chebyshev", ORDER, engine="disk", dtype="float16")


def test_disk_that_cannot_hold_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(OutOfResources, match=r"need 625.0 KiB of disk .* Got 1000 bytes"):
        write_tokens(small_graph(), tmp_path / "t", "chebyshev", ORDER, engine="disk")
    assert list(tmp_path.iterdir()) == []


def run_limited(largest_file: int, *command: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    main(command)


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of resources")
def test_full_disk_keeps_what_is_done(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk that fills up; without the limit the same command continues."""
    small_graph().save(tmp_path / "graph")
    command = ["tokens", str(tmp_path / "graph"), "--engine", "disk", "--order", "3", "--out", str(tmp_path / "t")]
    with WarmProcess(300_000, *command, function=run_limited) as process:
        assert process.wait() == 1
        assert process.errors.startswith("polyformer: Could not write tokens to")
        assert "File too large" in process.errors
    assert not (tmp_path / "t").exists()
    assert list((tmp_path / ".t.partial").glob("block-*"))
    assert run(*command) == 0
    assert len(open_tokens(tmp_path / "t")) == 400
