"""Configuration of Sphinx for the site of docs/: tox -e docs."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions")]

import pcircle  # noqa: E402
from pcircle.ops.digest import digests  # noqa: E402
from pcircle.runtime import task  # noqa: E402
from pcircle.runtime.summary import Summary  # noqa: E402
from pcircle.tools.fprof.profile import examinations  # noqa: E402
from pcircle.tools.fprof.reports import report  # noqa: E402

# Names that these modules import only for type checkers.
task.Summary = Summary  # type: ignore[attr-defined]
digests.ReadableBuffer = bytes  # type: ignore[attr-defined]
vars(report).update(
    {name: kind for name, kind in vars(examinations).items() if isinstance(kind, type)}
)

project = "pcircle"
author = "The pcircle authors"
project_copyright = author
release = version = pcircle.__version__

extensions = ["sphinx.ext.autodoc", "page_links", "option_index"]
# Blocks are plain text, unless they name a language.
highlight_language = "none"
exclude_patterns = ["_build"]
# Text in single backquotes in docstrings is code.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "pcircle"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_edit_link": "", "source_view_link": ""}
