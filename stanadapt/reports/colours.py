"""Colours for a dark page, made from those of figures for a light page.

Greys are inverted: dark ink becomes light ink on dark paper. Other colours keep their hue and become light
enough to be seen. Lightness is the one of OKLab: Ottosson (2020), A perceptual color space for image
processing, https://bottosson.github.io/posts/oklab/.
"""

from __future__ import annotations

import numpy as np

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_INK, _PAPER = 0.93, 0.24  # lightness on a dark page; on a light page these are black and white
_LIGHT = 0.72  # least lightness of a strong colour
_STRONG = 0.1  # chroma from which a colour counts as strong


def turn_dark(colour: str) -> str:
    """Turn a colour `rrggbb` into one for a dark page, `#rrggbb`."""
    lab = _to_lab(np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]))
    strength = min(1.0, float(np.hypot(lab[1], lab[2])) / _STRONG)
    turned = _INK + (_PAPER - _INK) * lab[0]
    lightness = (1 - strength) * turned + strength * max(lab[0], _LIGHT)
    lab[0] = lightness
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in _to_rgb(lab))


def _to_lab(rgb: np.ndarray) -> np.ndarray:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.asarray(_TO_LAB @ np.cbrt(_TO_CONES @ linear))


def _to_rgb(lab: np.ndarray) -> np.ndarray:
    linear = np.linalg.solve(_TO_CONES, np.linalg.solve(_TO_LAB, lab) ** 3).clip(0.0, 1.0)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
