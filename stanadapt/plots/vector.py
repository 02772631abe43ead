"""Figures as text of SVG, or as PNG."""

from __future__ import annotations

import io
import sys
from typing import Any

_DPI = 130  # of PNG


def draw_svg(figure: Any) -> str:
    """A matplotlib figure as SVG whose texts are texts, without a background, the same each time."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "stanadapt"}):
        return _save(figure, format="svg", metadata={"Date": None}, transparent=True).decode("utf-8")


def draw_png(figure: Any) -> bytes:
    """The same as PNG, on the figure's own background."""
    return _save(figure, format="png", dpi=_DPI)


def _save(figure: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, bbox_inches="tight", pad_inches=0.05, **options)
    return out.getvalue()


def close(figure: Any) -> None:
    """Forget a figure, so that a notebook does not show it once more."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
