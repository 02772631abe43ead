"""Methods from the front door to a file and back, with the arviz that is installed.

`make test` takes one of each kind: that each method runs from the front door, test_posteriors.py and
test_noisy.py see too.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from cases import OF_EACH_KIND, methods, partly_thorough
from stanadapt import samplers
from stanadapt.result.container import container, datasets, has_datatree
from stanadapt.result.files import read

CODE = """
data { int n; vector[n] y; }
parameters { real mu; real<lower=0> sigma; }
model { mu ~ normal(0, 10); sigma ~ exponential(1); y ~ normal(mu, sigma); }
generated quantities { vector[n] log_lik; for (i in 1:n) log_lik[i] = normal_lpdf(y[i] | mu, sigma); }
"""
DATA = {"n": 8, "y": [2.1, 3.4, 1.9, 2.8, 3.0, 2.2, 2.6, 3.1]}


@pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # the runs are short
@pytest.mark.parametrize("method", partly_thorough(methods(), OF_EACH_KIND))
def test_a_run_to_a_file_and_back(method: str, tmp_path: Path) -> None:
    idata = stanadapt.sample(
        CODE,
        DATA,
        method=method,
        chains=2,
        warmup=2_000,
        draws=2_000,
        seed=1,
        log_likelihood="log_lik",
        save_warmup=True,
        progress=False,
    )
    assert hasattr(idata, "children") == has_datatree()
    groups = datasets(idata)
    assert {"posterior", "sample_stats", "adaptation", "log_likelihood", "warmup_posterior"} <= set(groups)
    posterior, stats = groups["posterior"], groups["sample_stats"]
    assert posterior["sigma"].shape == stats["lp"].shape == (2, 2_000)
    assert groups["log_likelihood"]["log_lik"].shape == (2, 2_000, 8)
    reported = set(samplers.stats(samplers.sampler(method)))
    without = reported - set(stats.data_vars)
    assert set(stats.data_vars) <= reported
    assert without <= {"step_size"}, "only a method without a step size has a column less"
    table = stanadapt.summary(idata)
    truth = np.mean(DATA["y"])  # to a hundredth, since the prior is wide
    assert abs(table.loc["mu", "mean"] - truth) < 0.02 + 5.0 * table.loc["mu", "mcse_mean"]
    assert all(finding.kind for finding in stanadapt.diagnose(idata))

    idata.to_netcdf(tmp_path / "fit.nc")
    again = read(tmp_path / "fit.nc")
    assert type(again) is type(container({}, {}))
    assert again.attrs["method"] == method
    assert set(json.loads(again.attrs["settings"])) == set(samplers.settings_of(samplers.sampler(method)))
    for name, group in groups.items():
        for variable, values in group.items():
            np.testing.assert_array_equal(datasets(again)[name][variable], values, err_msg=str(variable))
    assert stanadapt.summary(again).equals(table)
