"""Links between the pages, in a form that also works where the sources are read.

`` `the manual <fcp.rst>`_ `` links to a page, with ``#section`` appended to a section of it. A link
to any other file downloads that file. All links are checked: a missing target is a warning.
"""

from __future__ import annotations

import posixpath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger
from sphinx.util.nodes import make_refnode

# Pages at the root of the checkout, and the pages of the site that include them.
ROOT_PAGES = {"CONTRIBUTING": "contributing", "CHANGELOG": "changelog", "SECURITY": "security"}
SECTION = "page-section"

warn = getLogger(__name__).warning


class PageLinks(SphinxTransform):
    """Turn relative links into links of the site."""

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
        name = ROOT_PAGES.get(posixpath.basename(name), name)
        about: dict[str, Any] = {
            "refdoc": self.env.docname,
            "refwarn": True,
            "reftarget": f"/{name}",
        }
        if kind != ".rst":
            about["reftarget"] = f"/{inside}"
            made: nodes.Element = addnodes.download_reference("", **about)
        elif section:
            made = addnodes.pending_xref(
                "", reftype=SECTION, refdomain="", section=section, **about
            )
        else:
            made = addnodes.pending_xref(
                "", reftype="doc", refdomain="std", refexplicit=True, **about
            )
        made += nodes.inline("", link.astext())
        made.source, made.line = link.source, link.line
        return made


class SectionLinks(SphinxTransform):
    """Check that links to sections of the same page have a target."""

    default_priority = 900

    def apply(self, **_: Any) -> None:
        for link in self.document.findall(nodes.reference):
            uri = link.get("refuri", "")
            if uri.startswith("#") and uri[1:] not in self.document.ids:
                warn("no such section: %s", uri, location=link)


def to_section(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Return a link to a section of another page; None for other links or a missing section."""
    name = node["reftarget"].removeprefix("/")
    if node["reftype"] != SECTION or name not in env.found_docs:
        return None
    if node["section"] not in env.get_doctree(name).ids:
        return None
    return make_refnode(app.builder, node["refdoc"], name, node["section"], content)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transforms with Sphinx."""
    app.add_transform(PageLinks)
    app.add_transform(SectionLinks)
    app.connect("missing-reference", to_section)
    return {"parallel_read_safe": True}
