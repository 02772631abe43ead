"""Results with names that a page must not take for its own, for tests of pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import xarray

from stanadapt.result.container import container

EVIL = "</script><script>alert('evil')</script>"
EVIL_NAME = "<script>alert('evil')<!--"  # ArviZ 1 takes no slash in the name of a variable
EVIL_LABELS = [EVIL, '<img src=x onerror="alert(1)">', "a & b ${x} $x_1$ {{ 7 * 7 }}"]
PROGRAM = f"""// {EVIL}
parameters {{ real x; }}
model {{ x ~ std_normal(); }}
"""


def evil_result(draws: int = 60, chains: int = 4, seed: int = 3) -> Any:
    """A result whose variable, coordinates, settings, program and attributes hold markup."""
    rng = np.random.default_rng(seed)
    names = ("chain", "draw", "which")
    x = rng.normal(size=(chains, draws, len(EVIL_LABELS)))
    coords = {"chain": range(chains), "draw": range(draws), "which": EVIL_LABELS}
    posterior = xarray.Dataset({EVIL_NAME: (names, x), "plain": (names[:2], x[..., 0] + 1.0)}, coords=coords)
    stats = xarray.Dataset(
        {
            "lp": (names[:2], -0.5 * (x**2).sum(axis=2)),
            "acceptance_rate": (names[:2], rng.uniform(0.6, 1.0, x.shape[:2])),
            "energy": (names[:2], rng.normal(size=x.shape[:2])),
            "diverging": (names[:2], rng.uniform(size=x.shape[:2]) < 0.1),
        },
        coords={"chain": range(chains), "draw": range(draws)},
    )
    data = xarray.Dataset({f"y{EVIL_NAME}": ("n", [1.0, 2.0])})
    attrs = {"inference_library": EVIL, "model_code": PROGRAM, "store": EVIL, "sampling_time": 1.5}
    return container({"posterior": posterior, "sample_stats": stats, "observed_data": data}, attrs)


def wide_result(parameters: int, draws: int, label: str = "p") -> Any:
    """A result of many parameters, with long names if `label` is."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(4, draws, parameters))
    coords = {"chain": range(4), "draw": range(draws), "which": [f"{label}{i}" for i in range(parameters)]}
    return container(
        {"posterior": xarray.Dataset({"x": (("chain", "draw", "which"), values)}, coords=coords)}
    )


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in_script = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [str(attrs[name]) for _, attrs in self.found if name in attrs]
