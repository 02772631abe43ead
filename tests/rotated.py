"""A Gaussian of many dimensions in rotated axes that are known; a gradient costs O(d)."""

from __future__ import annotations

from typing import Any

import numpy as np

import stanadapt

LAYERS = 4
PROGRAM = """
data {
  int d;
  int layers;
  array[layers, d %/% 2] int first;
  array[layers, d %/% 2] int second;
  array[layers] vector[d %/% 2] cosine;
  array[layers] vector[d %/% 2] sine;
  vector[d] sd;
}
parameters { vector[d] x; }
model {
  vector[d] y = x;
  for (i in 1:layers) {
    vector[d %/% 2] u = y[first[i]];
    vector[d %/% 2] v = y[second[i]];
    y[first[i]] = cosine[i] .* u - sine[i] .* v;
    y[second[i]] = sine[i] .* u + cosine[i] .* v;
  }
  target += -0.5 * dot_self(y ./ sd);
}
"""


class Rotated:
    """Variances from 1 to `condition`, log-uniform, in axes rotated by layers of plane rotations.

    With no layers the axes are those of x.
    """

    def __init__(self, d: int, condition: float = 1e4, layers: int = LAYERS) -> None:
        rng = np.random.default_rng(d)
        order = np.array([rng.permutation(d) for _ in range(layers)], int).reshape(layers, d)
        angle = rng.uniform(0.0, 2.0 * np.pi, (layers, d // 2))
        first, second = order[:, : d // 2], order[:, d // 2 : 2 * (d // 2)]
        self.d, self.sd = d, np.sqrt(np.geomspace(1.0, condition, d))
        self.axes = np.eye(d)  # y = axes @ x
        for i, j, a in zip(first, second, angle, strict=True):
            u, v, c, s = self.axes[i], self.axes[j], np.cos(a)[:, None], np.sin(a)[:, None]
            self.axes[i], self.axes[j] = c * u - s * v, s * u + c * v
        self._data = {"d": d, "layers": layers, "first": first + 1, "second": second + 1}
        self._data |= {"cosine": np.cos(angle), "sine": np.sin(angle), "sd": self.sd}

    @property
    def precision(self) -> np.ndarray:
        return np.asarray(self.axes.T @ (self.axes / np.square(self.sd)[:, None]))

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """`n` exact draws and their scores."""
        z = rng.standard_normal((n, self.d))
        return (z * self.sd) @ self.axes, -(z / self.sd) @ self.axes

    def standardize(self, x: np.ndarray) -> np.ndarray:
        """Draws (n, d) on their own axes, where they are standard normal."""
        return np.asarray(x @ self.axes.T / self.sd)

    def target(self) -> Any:
        """What kernels evaluate; the caller keeps the first of the two alive."""
        model = stanadapt.Posterior(PROGRAM, self._data).model.for_chain(0, np.random.SeedSequence(1))
        return model, model.target()
