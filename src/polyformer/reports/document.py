"""One self-contained HTML file from the findings on a run: template, styles, scripts and data in one."""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

from polyformer.errors import MissingDependency
from polyformer.files import reporting_io_errors, write_whole
from polyformer.reports.explorer import explorer_data
from polyformer.reports.findings import Findings
from polyformer.reports.sections import SECTIONS, Figures

__all__ = ["check_extra", "write_page", "write_report"]


def check_extra() -> None:
    """Refuse to go on without the packages of the extra ``report``."""
    if any(importlib.util.find_spec(name) is None for name in ("plotly", "jinja2")):
        raise MissingDependency("Reports need plotly and jinja2. Install them with: pip install 'polyformer[report]'")


def write_report(findings: Findings, path: Path) -> int:
    """Write the document, whole or not at all; returns its size in bytes.

    The sections are those of ``SECTIONS``: the template ``report.html`` walks over what they give, so that no section
    can be computed and not shown.
    """
    check_extra()
    all_sections = {name: section(findings) for name, section in SECTIONS.items()}
    sections = {name: content for name, content in all_sections.items() if content is not None}
    figures = {name: figure for content in sections.values() for name, figure in content.figures.items()}
    run, outcome = findings.run, findings.outcome
    context = {
        "title": f"{run.request.model} on {run.facts.name}",
        "warnings": (run.result or {}).get("warnings", []),
        "outcome": outcome,
        "sections": sections,
    }
    return write_page(path, "report.html", figures, None if outcome is None else explorer_data(outcome), context)


def write_page(path: Path, template: str, figures: Figures, explorer: Any, context: dict[str, Any]) -> int:
    """Fill a template, with styles, scripts and data inside it; returns the size in bytes."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(_template)
    )
    shown = {
        name: {"figure": json.loads(figure.to_json()), "title": title, "note": note}
        for name, (figure, title, note) in figures.items()
    }
    page = environment.get_template(template).render(
        **context,
        figures=shown,
        style=_part("theme.css") + _part("report.css"),
        script=_part("node_view.js") + _part("report.js"),
        plotly=get_plotlyjs(),
        data=_json({name: figure["figure"] for name, figure in shown.items()}),
        explorer=_json(explorer),
    )
    content = page.encode()
    with reporting_io_errors("the report", path), write_whole(path) as file:
        file.write(content)
    return len(content)


def _template(name: str) -> str | None:
    """The text of a template; None where there is none of that name, as a section may have no words."""
    file = resources.files("polyformer.reports").joinpath("templates", name)
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _part(name: str) -> str:
    text = _template(name)
    assert text is not None
    return text


def _json(content: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever names are in it."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
