"""Pages: each is one file of HTML that loads nothing from anywhere.

    render("report.html", title="...", ...)     a template of this room that extends base.html
    picture(figure, "chains", "...", "...")     a matplotlib figure, see vector.py
    Table("summary", ...)                       a table that can be sorted and searched, see table.py

Templates write `{{ show_picture(picture) }}` and `{{ show_table(table) }}`, which parts.html defines. jinja
escapes everything that a template inserts. In addition, the page's content security policy lets only the
scripts of this room run, and lets no request go out.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from .summary_table import Column, Table
from .vector import Picture, dark_rules, picture

if TYPE_CHECKING:
    import jinja2

__all__ = ["Column", "Picture", "Table", "picture", "render"]

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("theme.js", "table.js", "links.js")  # every page has these


def render(
    template: str,
    *,
    title: str,
    pictures: Sequence[Picture] = (),
    scripts: Sequence[str] = (),
    connects: bool = False,
    **content: Any,
) -> str:
    """Make a page.

    Parameters
    ----------
    template
        The name of a template that extends base.html.
    title
        Title of the window.
    pictures
        All pictures that the template shows; the page needs their colours for its dark theme.
    scripts
        Script files that this page has in addition to those of every page.
    connects
        Whether scripts may send requests to the server of the page.
    **content
        Everything else that the template shows. jinja escapes texts that are not `Markup`.

    Returns
    -------
    str
        HTML.
    """
    sources = [_read(name) for name in (*_SCRIPTS, *scripts)]
    return (
        _environment()
        .get_template(template)
        .render(
            content,
            title=title,
            policy=_policy(sources, connects),
            style=Markup(_read("page.css")),
            dark_colours=dark_rules(each.markup for each in pictures),
            scripts=[Markup(source) for source in sources],
        )
    )


def fill(template: str, **content: Any) -> str:
    """Make a part of a page from a template that does not extend base.html."""
    return _environment().get_template(template).render(content)


def _policy(sources: Sequence[str], connects: bool) -> str:
    """Write the content security policy: the hashes of the scripts, and a ban on loading anything."""
    hashes = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in sources]
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{each}'" for each in hashes),
        "style-src": "'unsafe-inline'",  # the colours of SVG stand in style attributes
        "img-src": "data:",
        "connect-src": "'self'" if connects else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


@functools.cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts: Any = made.get_template("parts.html").module
    made.globals |= {"show_picture": parts.show_picture, "show_table": parts.show_table}
    return made
