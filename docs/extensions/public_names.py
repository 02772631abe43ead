"""The default role: `sample` in a docstring is a link where the package has such a name, and code elsewhere.

Also registers what the pages are made from as a value of the configuration, so that a change of the package
makes every page anew.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

import stanadapt

_HYPHENS = re.compile(r"^(\)?) -- ")  # after a name, or after its type in brackets


def find_public(text: str) -> str | None:
    """The full name of what a text such as `sample`, `Target.from_python` or `methods()` stands for."""
    first, _, rest = text.removeprefix("stanadapt.").partition("(")[0].partition(".")
    if first not in stanadapt.__all__:
        return None
    held = getattr(stanadapt, first)
    if rest and not hasattr(held, rest):
        return None
    return ".".join(part for part in ("stanadapt", first, rest) if part)


class PublicRole(SphinxRole):
    """Code, with a link where it is the name of something public."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        code = nodes.literal(self.rawtext, self.text)
        name = find_public(self.text)
        if name is None:
            return [code], []
        reference = pending_xref(
            "", code, refdomain="py", reftype="obj", reftarget=name, refdoc=self.env.docname, refwarn=True
        )
        return [reference], []


def set_dashes(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put a dash between a parameter and its description, where Sphinx writes two hyphens.

    Sphinx leaves that to its typographic quotes, which would make dashes of the hyphens of options too.
    """
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.literal | nodes.literal_block) and _HYPHENS.match(text):
            text.parent.replace(text, nodes.Text(_HYPHENS.sub("\\1 \N{EN DASH} ", text, count=1)))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_role("public", PublicRole())
    app.connect("doctree-resolved", set_dashes)
    app.add_config_value("PACKAGE", "", "env")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
