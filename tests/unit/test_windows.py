"""The windows of warm-up."""

from __future__ import annotations

import subprocess
import sys

# Kernels that Python calls; those that only kernels call are loaded inside of these.
REHEARSAL = """
from stanadapt.numerics import dense_metric, windows
windows.rehearse()
kernels = (
    dense_metric.largest_ratio, dense_metric.mean_shift, dense_metric.solve_equation,
    dense_metric.curvature_factor, dense_metric.inverse_mass, dense_metric.is_informative,
)
print([kernel.py_func.__name__ for kernel in kernels if not kernel.signatures])
"""


def test_a_rehearsal_loads_what_a_window_calls_at_its_end() -> None:
    found = subprocess.run(
        [sys.executable, "-c", REHEARSAL], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.strip() == "[]"
