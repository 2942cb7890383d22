"""Formulas as MathML, which browsers draw themselves: the pages need no script and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own; Sphinx's ``&`` and ``\\\\`` align several."""
    formula = node.astext().strip()
    if "\\\\" in formula or "&" in formula:
        formula = rf"\begin{{aligned}}{formula}\end{{aligned}}"
    self.body.append(self.starttag(node, "div", CLASS="math") + convert(formula, display="block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
