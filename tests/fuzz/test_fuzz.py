"""Fixed seeds of the fuzzer for every reader, and the corpus of inputs that were once findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzzer import CORPUS, fuzz, replay
from tests.fuzz.readers import COMMANDS, READERS

SECONDS, INPUTS = 1.0, 30  # at most 48 s for all readers
COMMANDS_TRIED = 3


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_changed_inputs_end_in_a_sentence(name: str) -> None:
    tally = fuzz([name], range(INPUTS), SECONDS)
    assert tally.inputs[name] >= 1
    assert [str(finding) for finding in tally.findings] == []


@pytest.mark.slow
@pytest.mark.xdist_group("commands of the fuzzer")  # one process makes the runs and graphs that all commands begin with
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_on_changed_inputs_end_in_a_sentence(name: str) -> None:
    tally = fuzz([name], range(COMMANDS_TRIED))
    assert tally.inputs[name] == COMMANDS_TRIED
    assert [str(finding) for finding in tally.findings] == []


@pytest.mark.parametrize("case", sorted(CORPUS.glob("*/*")), ids=lambda case: f"{case.parent.name}-{case.name}")
def test_past_findings_stay_mended(case: Path) -> None:
    name = next(reader for reader in READERS if reader.replace(" ", "-") == case.parent.name)
    assert [str(finding) for finding in replay(name, case).findings] == []
