"""Figures as SVG inside a page: with texts for screen readers, and with colours that follow the page's theme.

matplotlib makes SVG that stands alone. Inside a page its identifiers would clash with those of other figures,
and its style sheet would act on the whole page. So this file reads the SVG as XML and writes it without them.
"""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from .. import check
from ..plots.canvas import write_png, write_svg
from .colours import turn_dark

MOST_BYTES = 500_000  # for a picture as SVG
MOST_MIXED_BYTES = 650_000  # for SVG with images inside
_STEPS = 300  # of a line, about as many as it has pixels; each goes from its lowest to its highest point
_MANY_POINTS = 1_000  # a panel with more points becomes an image if the picture is too large
_RASTER_ZORDER = 2.005  # above lines, below axes and texts
_LARGEST = 1.2  # a page shows a picture at up to so many times its size
_COLOUR = re.compile(r"#([0-9a-fA-F]{6})")
_NAMED_COLOUR = re.compile(r"var\(--x([0-9a-f]{6}),")
_UNSEEN = 40  # hundredths of a point: shorter steps of a line are joined
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_USE = re.compile(r"[(\"]#([^)\"]*)")
_FONT_SIZE = re.compile(r".*px")
_DROPPED = {"metadata", "style"}


class Picture(NamedTuple):
    """A picture for a page, see `templates/picture.html`."""

    id: str  # the target of links on the page
    title: str
    description: str  # for readers who do not see the picture
    markup: Markup


def picture(figure: Any, id: str, title: str, description: str) -> Picture:
    """A matplotlib figure for a page.

    Parameters
    ----------
    figure
        A `matplotlib.figure.Figure`.
    id
        Letters, digits and hyphens; unique on a page: `#id` links to the picture.
    title, description
        A few words, and a sentence or two that say what the picture shows. Any text.

    Returns
    -------
    Picture
        SVG whose colours follow the theme of the page. A line of thousands of points keeps the lowest and the
        highest of neighbouring points, which looks the same. If the SVG is larger than 500 kB, panels of many
        points become images inside it; if it is still too large, the whole picture becomes one image.
    """
    for axes in figure.axes:
        for line in axes.lines:
            _thin(line)
    markup = _inline(write_svg(figure), id, title, description)
    if len(markup.encode()) > MOST_BYTES:
        _simplify(figure)
        markup = _inline(write_svg(figure), id, title, description)
    if len(markup.encode()) > MOST_MIXED_BYTES:
        data = base64.b64encode(write_png(figure)).decode("ascii")
        image = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, description)
        return Picture(id, title, description, image)
    return Picture(id, title, description, markup)


def dark_rules(texts: Iterable[str]) -> Markup:
    """Write CSS declarations that give all colours in these texts of SVG their dark forms."""
    colours = sorted({colour for text in texts for colour in _NAMED_COLOUR.findall(text)})
    return Markup("".join(f"--x{colour}:{turn_dark(colour)};" for colour in colours))


def _thin(line: Any) -> None:
    """Keep only the lowest and the highest point of each step of a line along x."""
    x, y = (np.asarray(values, dtype=float) for values in line.get_data(orig=False))
    size = len(x) // _STEPS
    if size < 4 or not np.all(np.diff(x) >= 0) or not np.isfinite(y).all():
        return
    whole = _STEPS * size
    parts = y[:whole].reshape(_STEPS, size)
    starts = size * np.arange(_STEPS)
    places = [starts + parts.argmin(axis=1), starts + parts.argmax(axis=1), np.arange(whole, len(x))]
    kept = np.unique(np.concatenate([[0, len(x) - 1], *places]))
    line.set_data(x[kept], y[kept])
    line.set_rasterized(False)  # it has few points now


def _simplify(figure: Any) -> None:
    """Make matplotlib draw panels with many points as images; their axes and texts stay vectors."""
    for axes in figure.axes:
        points = sum(len(line.get_xdata()) for line in axes.lines)
        points += sum(len(each.get_offsets()) + len(each.get_paths()) for each in axes.collections)
        if points > _MANY_POINTS:
            axes.set_rasterization_zorder(_RASTER_ZORDER)


def _inline(text: str, id: str, title: str, description: str) -> Markup:
    root = ET.fromstring(text)  # matplotlib wrote it; it is no file from a user
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in _DROPPED:
                parent.remove(child)
    used = set(_USE.findall(text))
    for element in root.iter():
        if element.get("id") not in used:  # nothing refers to it, and another figure may use it too
            element.attrib.pop("id", None)
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
    """Remove the namespace from a name: HTML adds it inside <svg> by itself."""
    return name.rpartition("}")[2]


def _value(name: str, value: str, id: str) -> str:
    """Adapt an attribute: prefix identifiers with the picture's, and take the colours of the page."""
    if name == "id":
        return f"{id}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{id}-{value[1:]}"
    value = _REFERENCE.sub(rf"url(#{id}-\1)", value)
    if name == "d":
        return _shorten(value)
    if name == "style":
        return ";".join(filter(None, map(_declaration, value.split(";"))))
    return value


def _shorten(path: str) -> str:
    """Write a path of straight lines in hundredths of a point, without steps too small to be seen."""
    tokens = path.split()
    if not tokens or not set(filter(str.isalpha, tokens)) <= {"M", "L", "z"}:
        return path
    out, place, here = [], 0, (0, 0)
    while place < len(tokens):
        if tokens[place] == "z":
            out.append("z")
            place += 1
            continue
        to = (round(100 * float(tokens[place + 1])), round(100 * float(tokens[place + 2])))
        step = (to[0] - here[0], to[1] - here[1])
        after = tokens[place + 3 : place + 4]
        if tokens[place] == "M":
            out.append(f"M{_pair(*to)}")
            here = to
        elif after != ["L"] or max(abs(step[0]), abs(step[1])) >= _UNSEEN:
            out.append(f"l{_pair(*step)}")
            here = to
        place += 3
    return "".join(out)


def _pair(x: int, y: int) -> str:
    """Write two numbers of hundredths as short as SVG allows."""
    first, second = (f"{value / 100:.2f}".rstrip("0").rstrip(".") for value in (x, y))
    first, second = (re.sub(r"^(-?)0(?=\.)", r"\1", text) for text in (first, second))
    return f"{first}{'' if second.startswith('-') else ' '}{second}"


def _declaration(text: str) -> str:
    """Rewrite a declaration of a style with the colours and the font of the page."""
    name, _, value = (part.strip() for part in text.partition(":"))
    if name == "font-family":
        return ""
    if name == "font":  # as older versions of matplotlib write it
        size = _FONT_SIZE.match(value)
        return f"font:{size[0]} var(--font)" if size else ""
    if colour := _COLOUR.fullmatch(value):
        value = f"var(--x{colour[1].lower()},{value})"
    return f"{name}:{value}"
