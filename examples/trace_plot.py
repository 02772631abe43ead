"""A picture of a result: traces, what warm-up learnt, and the posterior of one vector.

python examples/trace_plot.py fit.nc trace.png [mu tau theta]
"""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import xarray


def main(source: str, picture: str, scalars: list[str], vector: str) -> None:
    posterior = xarray.open_dataset(source, group="posterior", engine="h5netcdf")
    adaptation = xarray.open_dataset(source, group="adaptation", engine="h5netcdf")
    fig, axes = plt.subplots(2, 2, figsize=(11, 6), width_ratios=(2, 1.2), layout="constrained")
    for axis, name in zip(axes[:, 0], scalars, strict=True):
        thin = max(1, posterior.sizes["draw"] // 1000)
        for chain in posterior["chain"].values:
            draws = posterior[name].sel(chain=chain)[::thin]
            axis.plot(draws["draw"], draws, lw=0.4, alpha=0.8, label=f"chain {chain}")
        axis.set(title=f"{name}: every {thin}th draw", xlabel="draw", ylabel=name)
        axis.margins(x=0)

    warmup = axes[0, 1]
    for chain in adaptation["chain"].values:
        history = adaptation.sel(chain=chain)
        warmup.plot(history["iteration"], history["preconditioner_condition"], lw=1)
    warmup.set(title="condition number of the preconditioner", xlabel="iteration of warm-up", yscale="log")

    entries = posterior[vector].stack(sample=("chain", "draw")).values
    low, mid, high = np.quantile(entries, (0.05, 0.5, 0.95), axis=-1)
    places = np.arange(len(mid))
    axes[1, 1].hlines(places, low, high, lw=2)
    axes[1, 1].plot(mid, places, "o")
    axes[1, 1].set(title=f"{vector}: median and 90 % interval", yticks=places, ylabel="entry")
    axes[1, 1].invert_yaxis()
    fig.suptitle(f"{posterior.attrs['method']}, {posterior.attrs['backend']}")
    fig.savefig(picture, dpi=110)
    print(f"wrote {picture}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 6):
        sys.exit(__doc__)
    first, second, last = sys.argv[3:] or ("mu", "tau", "theta")
    main(sys.argv[1], sys.argv[2], [first, second], last)
