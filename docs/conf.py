"""How the documentation is built: `make docs`, or `sphinx-build -W docs build/docs`.

Pages that could drift from the program are written by the program: see `_generate`. They go to `generated/`, which
is not kept under version control. Nothing is fetched from the network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from _generate import write_pages  # noqa: E402  # the path above comes first

import calipers  # noqa: E402

project = "Calipers"
author = "The Calipers authors"
copyright = f"2026, {author}"  # the name Sphinx asks for
release = calipers.__version__

# Docstrings with Args, Returns and Raises are Google style.
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "_generate.formulas"]
html_math_renderer = "mathml"
exclude_patterns = ["_generate", "_static", "notebooks"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Indented blocks of the mathematics are formulas, not Python.
highlight_language = "none"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Calipers {release}"
html_static_path = ["_static"]
html_css_files = ["calipers.css"]
html_show_sphinx = False
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for sources."""
    app.connect("builder-inited", lambda _: write_pages(HERE / "generated"))
    # Docstrings here are Markdown with `code` in single backquotes; see `_generate.docstrings`.
    from _generate.docstrings import to_rst

    app.connect("autodoc-process-docstring", to_rst)
