"""What is declared, what is pinned, and what uv is told of pip's configuration."""

from __future__ import annotations

import pytest

from tools import install
from tools.requirements import BOUNDED, ROOT, lowest, normalised, requirements

PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]


def test_every_requirement_has_a_bound_and_a_pin() -> None:
    pinned = {normalised(line.split("==")[0]) for line in PINS}
    for line in requirements(["dev"]):
        bound = BOUNDED.fullmatch(line)
        assert bound, line
        assert normalised(bound["name"]) in pinned


def test_lowest_replaces_the_pins_of_requirements_but_of_what_is_kept() -> None:
    constraints = lowest(["torch>=2.5", "ray[default]>=0.1"], ["torch"])
    assert set(constraints) == {"ray==0.1", *(line for line in PINS if not line.startswith("ray=="))}


def test_uv_is_told_what_pip_is_configured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, variable, _ in install.SETTINGS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_INDEX", "https://own/simple")
    configured = {"find-links": "/wheels\n/more", "extra-index-url": "https://a/simple", "quiet": "1"}
    monkeypatch.setattr(install, "pip_settings", lambda: configured)
    told = {key: value for key, value in install.uv_environment().items() if key in ("UV_FIND_LINKS", "UV_INDEX")}
    assert told == {"UV_FIND_LINKS": "/wheels,/more", "UV_INDEX": "https://own/simple"}
