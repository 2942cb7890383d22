"""JSON that is legal and that nobody meant: nested deep, numbers of 6,000 digits, odd texts, keys that stand twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyformer.errors import FileCorrupt
from polyformer.files import read_json, read_json_lines, write_json
from polyformer.files.schema import Number, Object, Schema, Text, Whole

SCHEMA = Schema("a shop", Object({"name": Text(), "count": Whole()}, {"rate": Number()}), checksum=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":' * 50_000, "nested too deep"),
        ("[" * 50_000, "nested too deep"),
        ('{"name": "x", "count": ' + "9" * 6000 + "}", "cannot be read as JSON"),
        ('{"name": "x", "count": 99999999999999999999}', "a whole number from"),
        ('{"name": "x", "count": 1.0}', "a whole number from"),
        ('{"name": "x", "count": true}', "a whole number from"),
        ('{"name": "x", "count": 1, "rate": NaN}', "a finite number"),
        ('{"name": "x", "count": 1, "rate": 1e999}', "a finite number"),
        ('{"name": null, "count": 1}', "must be a text"),
        ('{"count": 1}', "it has no 'name'"),
        ("null", "it holds no JSON object"),
        ("", "cannot be read as JSON"),
        ('\ufeff{"name": "x", "count": 1}', "cannot be read as JSON"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_not_of_the_schema_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(FileCorrupt, match=reason) as refused:
        read_json(tmp_path / "a.json", SCHEMA)
    assert len(str(refused.value)) < 600


def test_latin1_and_other_bytes_are_refused(tmp_path: Path) -> None:
    for data in (b'{"name": "\xe9", "count": 1}', b"\xff\xfe{", bytes(40)):
        (tmp_path / "a.json").write_bytes(data)
        with pytest.raises(FileCorrupt, match="cannot be read as JSON"):
            read_json(tmp_path / "a.json", SCHEMA)


def test_a_key_that_stands_twice_changes_nothing_unnoticed(tmp_path: Path) -> None:
    """Parsers differ in which of two values they take; the hash is that of what this one took."""
    path = tmp_path / "a.json"
    write_json(path, {"name": "x", "count": 3}, SCHEMA)
    text = path.read_text()
    path.write_text(text.replace('"count": 3', '"count": 4, "count": 3'))
    assert read_json(path, SCHEMA)["count"] == 3
    path.write_text(text.replace('"count": 3', '"count": 3, "count": 4'))
    with pytest.raises(FileCorrupt, match="its checksum differs"):
        read_json(path, SCHEMA)


def test_damaged_lines_are_refused_and_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    path, line = tmp_path / "a.jsonl", '{"name": "x", "count": 1}\n'
    path.write_text(line + '{"name": "y", "cou')
    assert [record["name"] for record in read_json_lines(path, SCHEMA)] == ["x"]
    for damaged in ("[" * 50_000, '{"name": "y", "count": ' + "9" * 6000 + "}", "\x00"):
        path.write_text(line + damaged + "\n" + line)
        with pytest.raises(FileCorrupt, match="in line 2"):
            list(read_json_lines(path, SCHEMA))
