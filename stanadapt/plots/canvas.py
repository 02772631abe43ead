"""Figures, colours and labels that all pictures share. No other file imports matplotlib.

The first picture imports matplotlib. matplotlib itself chooses the backend: a notebook shows the figures, and
a machine without a display draws them into memory.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import check
from ..cache import import_with_home
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008), Color Universal Design, without the yellow, which is too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DIVERGING, SEQUENTIAL = "RdBu_r", "viridis"  # maps of colours that colour-blind readers can tell apart
GREY, SHADE = "#7a7a7a", "#8c8c8c"  # for reference lines; for shaded stages
NOTE = "#555555"  # for small text, which must be legible on light and on dark pages
_INK = "#1b1c1d"  # for text and lines; in SVG it becomes the colour of the text around the picture
_STYLE = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.dpi": 110,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",  # text stays text, which can be read aloud and searched
    "svg.hashsalt": "stanadapt",  # the same picture is the same file
    "text.color": _INK,
    "xtick.color": _INK,
    "xtick.labelsize": 8,
    "ytick.color": _INK,
    "ytick.labelsize": 8,
}
_LEGEND = 8  # a legend names up to so many chains
_detached = contextvars.ContextVar("detached", default=False)


@functools.cache
def matplotlib() -> Any:
    """Import matplotlib with the parts that this room uses, without the one that shows figures."""
    import_with_home(lambda: importlib.import_module("matplotlib.figure"))  # and with it axes, lines, ticker
    return importlib.import_module("matplotlib")


@functools.cache
def pyplot() -> Any:
    """Import the part of matplotlib that shows figures."""
    return import_with_home(lambda: importlib.import_module("matplotlib.pyplot"))


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Give all pictures the same look while they are drawn; the user's own settings come back after that.

    A notebook's backend turns interactive mode on when the first figure loads it. That stays: without it the
    notebook would show no later figure.
    """
    library = matplotlib()
    with library.rc_context(_STYLE):
        try:
            yield
        finally:
            is_interactive = library.is_interactive()
    library.interactive(is_interactive)


def make_axes(
    rows: int,
    columns: int,
    axes: Any,
    figsize: tuple[float, float] | None,
    default: tuple[float, float],
    **grid: Any,
) -> np.ndarray:
    """Return the axes (rows, columns) to draw on: the given ones, or those of a new figure.

    Parameters
    ----------
    axes
        One of matplotlib's Axes, or an array of them, as many as are needed; or None.
    figsize, default
        Width and height of a new figure in inches: what the user asks for, and what it is otherwise.
    **grid
        Further arguments of `Figure.subplots`.

    Raises
    ------
    ArgumentError
        The number of axes is wrong, they are not matplotlib's, or `figsize` is not a size.
    """
    if axes is not None:
        return _users_axes(axes, rows, columns)
    size = default if figsize is None else _size(figsize)
    made: np.ndarray = new_figure(size).subplots(rows, columns, squeeze=False, **grid)
    return made


def new_figure(size: tuple[float, float]) -> Figure:
    """Make an empty figure of this width and height in inches."""
    if _detached.get():
        made: Figure = matplotlib().figure.Figure(size, layout="constrained")
    else:
        made = pyplot().figure(figsize=size, layout="constrained")
    return made


def _users_axes(axes: Any, rows: int, columns: int) -> np.ndarray:
    flat = np.asarray(axes, dtype=object).ravel()
    kind = matplotlib().axes.Axes
    if not all(isinstance(each, kind) for each in flat):
        raise check.refusal("axes", axes, "matplotlib's Axes, or an array of them")
    if flat.size != rows * columns:
        raise ArgumentError(f"axes: {flat.size} are given, and this picture needs {rows * columns}")
    return flat.reshape(rows, columns)


def _size(figsize: Any) -> tuple[float, float]:
    if not isinstance(figsize, list | tuple) or len(figsize) != 2:
        raise check.refusal("figsize", figsize, "a width and a height in inches")
    width, height = (check.number("figsize", side, 0.0, 200.0, open_low=True) for side in figsize)
    return width, height


def colours(n: int) -> list[Any]:
    """Choose a colour for each of `n` chains."""
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    ramp = matplotlib().colormaps[SEQUENTIAL]
    return [ramp(place) for place in np.linspace(0.0, 0.92, n)]


def plain(text: object) -> str:
    """Escape a name: matplotlib reads a dollar as mathematics, and hides a label that begins with _."""
    written = check.printable(str(text)).replace("$", r"\$")
    return f" {written}" if written.startswith("_") else written


def set_log(ax: Any, *axes: str) -> None:
    """Set logarithmic scales on "x" or "y" or both, with few labels, which are plain numbers."""
    ticker = matplotlib().ticker
    for name in axes:
        getattr(ax, f"set_{name}scale")("log")
        axis = getattr(ax, f"{name}axis")
        low, high = sorted(axis.get_view_interval())
        short = 0.0 < high < 50.0 * low
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,), numticks=6))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def name_chains(
    axes: Axes, chains: np.ndarray, others: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Put a legend of the chains below the figure; of many chains it names the first and the last.

    `others` are further marks for the legend, with the properties of matplotlib's Line2D.
    """
    line = matplotlib().lines.Line2D
    shown = range(len(chains)) if len(chains) <= _LEGEND else (0, len(chains) - 1)
    inks = colours(len(chains))
    handles = [line([], [], color=inks[i], lw=2, label=f"chain {plain(chains[i])}") for i in shown]
    for label, look in (others or {}).items():
        handles.append(line([], [], **{"lw": 0, "ms": 4} | dict(look), label=label))
    title = None if len(chains) <= _LEGEND else f"{len(chains)} chains, in the order of the colours"
    figure: Any = axes.figure
    rows = -(-len(handles) // max(1, int(1.1 * figure.get_figwidth())))
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=title)


def to_svg(picture: Callable[..., np.ndarray], idata: Any, **options: Any) -> str:
    """Draw a picture as an SVG element for a page; see `draw_detached` and `write_svg`."""
    return write_svg(draw_detached(picture, idata, **options))


def draw_detached(picture: Callable[..., np.ndarray], idata: Any, **options: Any) -> Figure:
    """Draw a picture on a figure that matplotlib's pyplot does not know.

    So nothing shows it, and nobody has to close it.

    Parameters
    ----------
    picture
        One of the functions of this room, such as `plot_chains`.
    idata
        What the picture shows.
    **options
        Further arguments of the function, except `axes`.
    """
    before = _detached.set(True)
    try:
        axes = picture(idata, **options)
    finally:
        _detached.reset(before)
    figure: Figure = axes.flat[0].figure
    return figure


def write_svg(figure: Figure) -> str:
    """Write a figure as an SVG element without a background; its text has the colour of the page's text."""
    file = io.StringIO()
    with style():
        figure.savefig(file, format="svg", transparent=True, dpi=150, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def write_png(figure: Figure) -> bytes:
    """Write a figure as PNG on its own background."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
