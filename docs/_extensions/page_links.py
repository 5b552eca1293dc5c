"""Links of the pages, which are written so that they work where the sources are read, too.

`` `the manual <fcp.rst>`_ `` is a link to a page, and to any other file one that loads it. Both are
checked: a page or a file that does not exist is a warning.
"""

from __future__ import annotations

import posixpath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# Pages at the root of the checkout, by the pages of the site that have their text.
ROOT_PAGES = {"CONTRIBUTING": "contributing", "CHANGELOG": "changelog", "SECURITY": "security"}


class PageLinks(SphinxTransform):
    """Relative links become links of the site."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for link in list(self.document.findall(nodes.reference)):
            uri = link.get("refuri", "")
            if uri and ":" not in uri and not uri.startswith(("#", "/")):
                link.replace_self(self._internal(link, uri))

    def _internal(self, link: nodes.reference, uri: str) -> nodes.Element:
        path, _, section = uri.partition("#")
        here = posixpath.dirname(self.env.docname)
        inside = posixpath.normpath(posixpath.join(here, path.removeprefix("docs/")))
        name, kind = posixpath.splitext(inside)
        if kind != ".rst":
            made: nodes.Element = addnodes.download_reference(
                "", reftarget="/" + inside, refdoc=self.env.docname, refwarn=True
            )
        elif section:
            made = nodes.reference("", refuri=uri)
        else:
            name = ROOT_PAGES.get(posixpath.basename(name), name)
            made = addnodes.pending_xref(
                "", reftype="doc", refdomain="std", refexplicit=True, refwarn=True,
                reftarget="/" + name, refdoc=self.env.docname,
            )  # fmt: skip
        made += nodes.inline("", link.astext())
        made.source, made.line = link.source, link.line
        return made


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_transform(PageLinks)
    return {"parallel_read_safe": True}
