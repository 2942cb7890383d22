"""Directories and files that somebody made on purpose: fitting hashes, links to other files, claims without content."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import polyformer as pf
from polyformer.cli import main
from polyformer.errors import FileCorrupt, InvalidData, WriteFailed
from polyformer.experiments.plan import Plan
from polyformer.files import open_in_place, read_npz
from polyformer.graph import Graph
from polyformer.importing import open_source
from polyformer.importing.tables import open_table
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tokens import open_tokens
from polyformer.updates.graph_directory import update_graph
from polyformer.updates.tokens import update_tokens
from polyformer.verification import verify_directory
from tests.crash.work import train_small
from tests.edits import adopt, plain_json, rewrite_json
from tests.fuzz.more_readers import make_changed
from tests.updates.killed import change


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A graph directory with three changes, and tokens with a log of two of them."""
    make_changed(tmp_path)
    return tmp_path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    train_small(tmp_path)
    return tmp_path / "run"


def test_a_damaged_record_within_the_log_of_tokens_is_noticed(changed: Path) -> None:
    """A kill can break the last record only; without the check all later changes were forgotten in silence."""
    log = next((changed / "tokens").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[20] ^= 1  # in the header of the first record
    log.write_bytes(data)
    with pytest.raises(FileCorrupt, match="later changes of the tokens follow"):
        open_tokens(changed / "tokens")


def test_verify_hashes_every_record_of_the_log(changed: Path) -> None:
    log = next((changed / "tokens").glob("*.log"))
    data = bytearray(log.read_bytes())
    second = data.index(data[:8], 8)
    data[second - 80] ^= 1  # tokens of the first record, whose hash opening does not compute
    log.write_bytes(data)
    with pytest.raises(FileCorrupt, match="later changes of the tokens follow"):
        verify_directory(changed / "tokens")


def test_verify_tells_of_a_change_that_was_cut_off(changed: Path) -> None:
    log = next((changed / "tokens").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-70])
    assert "is left out" in " ".join(verify_directory(changed / "tokens"))


@pytest.mark.parametrize("ids", [np.array([1.5]), np.array([10**6]), np.array([-1]), np.array([3, 2]), np.array(4)])
def test_rows_that_a_change_touched_are_checked(changed: Path, ids: np.ndarray) -> None:
    path = changed / "graph" / "change-3.npz"
    arrays = read_npz(path, None)
    np.savez(path, **arrays | {"ends": ids, "degrees": np.ones(ids.shape)})
    with pytest.raises(FileCorrupt, match=r"change-3\.npz"):
        update_tokens(changed / "tokens", Graph.load(changed / "graph"))


def test_rows_that_a_change_touched_are_hashed(changed: Path) -> None:
    path = changed / "graph" / "change-3.npz"
    arrays = read_npz(path, None)
    np.savez(path, **arrays | {"degrees": arrays["degrees"] + 1})
    with pytest.raises(FileCorrupt, match="its hash differs"):
        verify_directory(changed / "graph")


def test_an_update_does_not_write_through_a_link(changed: Path) -> None:
    victim = changed / "letter.txt"
    victim.write_text("dear aunt")
    (changed / "graph" / "journal.jsonl").unlink()
    rewrite_json(changed / "graph" / "manifest.json", version=0)
    (changed / "graph" / "journal.jsonl").symlink_to(victim)
    with pytest.raises(WriteFailed, match="symbolic link"):
        update_graph(changed / "graph", change)
    assert victim.read_text() == "dear aunt"


def test_nothing_is_opened_for_writing_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteFailed, match="Put the file in its place"):
        open_in_place(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_a_config_that_claims_wide_layers_costs_no_memory(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plain_json(trained / "config.json")
    config["card"]["settings"]["hidden_channels"] = 8192
    rewrite_json(trained / "config.json", config)
    adopt(trained)
    monkeypatch.setattr("polyformer.runs.saved_model.ModelCard.build", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(FileCorrupt, match="does not fit"):
        Run.open_model(trained).load()
    with pytest.raises(FileCorrupt, match=r"do not fit its config\.json"):
        pf.PolyFormer.from_pretrained(trained)


def test_a_tensor_without_numbers_is_refused(tmp_path: Path) -> None:
    content = {"edge_index": torch.tensor([[0, 1], [1, 0]]), "x": torch.empty(2, 2, device="meta")}
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(InvalidData, match="on meta"):
        open_source(tmp_path / "a.pt")


def test_a_member_of_an_npz_ends_where_its_numbers_end(tmp_path: Path) -> None:
    """Its checksum is compared at its end only: with bytes behind the numbers, damage of the numbers went unseen."""
    np.save(tmp_path / "x.npy", np.arange(100))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes() + bytes(9000))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[300] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(FileCorrupt):
        read_npz(tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize("nodes", [np.array([0.5]), np.array([[1]]), np.array(["a"]), np.array(1)])
def test_a_split_is_a_list_of_node_ids(nodes: np.ndarray) -> None:
    with pytest.raises(InvalidData, match="must be a list of node ids"):
        Split(nodes, np.array([1]), np.array([2])).check(np.zeros(5, np.int64))


def test_a_plan_that_is_nested_deep_is_refused() -> None:
    with pytest.raises(FileCorrupt, match="is not TOML"):
        Plan.parse("deep", "a=" + "[" * 100_000)


def test_a_sentence_does_not_repeat_a_long_cell() -> None:
    sentence = str(InvalidData(f"The cell '{'9' * 60_000}' is no number. Correct it."))
    assert len(sentence) < 2100
    assert sentence.endswith("Correct it.")


def test_an_error_of_the_system_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report makes a temporary folder, which a failing disk refuses."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "place")

    monkeypatch.setattr("polyformer.verification.verify_directory", refuse)
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path)])
    assert capsys.readouterr().err.startswith("polyformer: The system refused 'place': Input/output error.")


def test_names_of_many_columns_are_compared_once(tmp_path: Path) -> None:
    """With a look at all names for each name, a table of 3 MB took minutes."""
    count = 3000
    (tmp_path / "t.csv").write_text(",".join(f"c{i}" for i in range(count)) + ",c7\n" + "1," * count + "1\n")
    with pytest.raises(InvalidData, match="more than one column 'c7'"):
        _ = open_table(tmp_path / "t.csv").names


def test_a_table_that_repeats_one_row_for_ever_is_refused(tmp_path: Path) -> None:
    """Parquet keeps a row that repeats once: 20,000,000 edges in a file of 135 kB."""
    zeros = pa.array(np.zeros(20_000_000, np.int32))
    pq.write_table(pa.table({"source": zeros, "target": zeros}), tmp_path / "edges.parquet")
    with pytest.raises(InvalidData, match="claims 20,000,000 rows"):
        open_source(tmp_path / "edges.parquet")


def test_a_log_that_claims_rows_outside_the_tokens_is_refused(changed: Path) -> None:
    manifest = json.loads((changed / "tokens" / "manifest.json").read_text())
    stored = open_tokens(changed / "tokens")
    from polyformer.stores.log_checks import check_row_ids

    for ids in (np.array([-1]), np.array([len(stored)])):
        with pytest.raises(FileCorrupt, match="names rows outside"):
            check_row_ids([ids], len(stored), stored.log_path)
    assert manifest["num_rows"] <= len(stored)
