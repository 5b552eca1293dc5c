"""How Sphinx makes the site of docs/: tox -e docs."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions")]

import pcircle  # noqa: E402

project = "pcircle"
author = "The pcircle authors"
project_copyright = author
release = version = pcircle.__version__

extensions = ["page_links"]
# Programs are in the pages as text; where a block is of another language it says so.
highlight_language = "none"
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "pcircle"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_edit_link": "", "source_view_link": ""}
