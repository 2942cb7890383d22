"""How `make docs` builds the site: warnings are errors, and the pages work from a folder without a network."""

from __future__ import annotations

import sys
from pathlib import Path

from polyformer.version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project, author, release = "polyformer", "The polyformer authors", __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "command_line",
]
smartquotes = False  # they would turn --option into –option
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"polyformer {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False  # the file LICENSE says whose it is

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_use_ivar = True
napoleon_custom_sections = ["Shapes"]
