"""Figures as SVG inside of a page: with words for screen readers, and in colours that follow the page's.

matplotlib's SVG is made to stand alone. Inside of a page its identifiers meet those of other figures, and its
style sheet would hold for the page. So it is read as XML and written again without these.
"""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Any, NamedTuple

from markupsafe import Markup

from .. import check
from ..plots.vector import draw_png, draw_svg
from .colours import turn_dark

MOST_BYTES = 400_000  # of a picture as SVG; what takes more is a PNG
_LARGEST = 1.2  # times its own size; the larger, the larger its texts
_COLOUR = re.compile(r"#([0-9a-fA-F]{6})")
_NAMED_COLOUR = re.compile(r"var\(--x([0-9a-f]{6}),")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_FONT_SIZE = re.compile(r".*px")
_DROPPED = {"metadata", "style"}


class Picture(NamedTuple):
    """A picture for a page, see `templates/picture.html`."""

    id: str  # that links on the page have
    title: str
    description: str  # what there is to see, for who does not see it
    markup: Markup


def picture(figure: Any, id: str, title: str, description: str) -> Picture:
    """A matplotlib figure for a page.

    Parameters
    ----------
    figure
        A `matplotlib.figure.Figure`.
    id
        Letters, digits and hyphens, no two alike on a page: `#id` links to the picture.
    title, description
        A few words, and a sentence or two that say what the picture shows. Any text.

    Returns
    -------
    Picture
        SVG whose colours follow light and dark; where that would take more than 400 kB, a PNG.
    """
    text = draw_svg(figure)
    if len(text.encode()) > MOST_BYTES:
        data = base64.b64encode(draw_png(figure)).decode("ascii")
        image = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, description)
        return Picture(id, title, description, image)
    return Picture(id, title, description, _inline(text, id, title, description))


def dark_rules(texts: Iterable[str]) -> Markup:
    """CSS declarations with the dark forms of all colours that these texts of SVG have."""
    colours = sorted({colour for text in texts for colour in _NAMED_COLOUR.findall(text)})
    return Markup("".join(f"--x{colour}:{turn_dark(colour)};" for colour in colours))


def _inline(text: str, id: str, title: str, description: str) -> Markup:
    root = ET.fromstring(text)  # our own, not a user's file
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in _DROPPED:
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _value(_local(name), value, id) for name, value in element.attrib.items()
        }
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    width = float(root.attrib["viewBox"].split()[2])  # in points
    root.attrib["style"] = f"max-width:{_LARGEST * width / 0.75:.0f}px"
    root.attrib |= {"role": "img", "aria-labelledby": f"{id}-title {id}-desc"}
    for place, (name, words) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(name, {"id": f"{id}-{name}"})
        element.text = check.printable(words)
        element.tail = "\n"
        root.insert(place, element)
    return Markup(ET.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """A name without its namespace, which HTML gives to what is inside of <svg>."""
    return name.rpartition("}")[2]


def _value(name: str, value: str, id: str) -> str:
    """An attribute's value: identifiers with the picture's before them, and colours of the page."""
    if name == "id":
        return f"{id}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{id}-{value[1:]}"
    value = _REFERENCE.sub(rf"url(#{id}-\1)", value)
    if name == "style":
        return ";".join(filter(None, map(_declaration, value.split(";"))))
    return value


def _declaration(text: str) -> str:
    """A declaration of a style, in the page's colours and its font."""
    name, _, value = (part.strip() for part in text.partition(":"))
    if name == "font-family":
        return ""
    if name == "font":  # as older versions of matplotlib write it
        size = _FONT_SIZE.match(value)
        return f"font:{size[0]} var(--font)" if size else ""
    if colour := _COLOUR.fullmatch(value):
        value = f"var(--x{colour[1].lower()},{value})"
    return f"{name}:{value}"
