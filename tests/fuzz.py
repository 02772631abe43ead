"""Odd arguments, options, files and programs, drawn from a seed, and what the package answers to them.

An example is a call that may succeed or be refused in the package's own words. Anything else is a failure: an
exception of another type, an undocumented exit status, a traceback, a crash of the process, a hang. Examples
run in a child process, because a crash or a hang ends it: `failures` starts the child again behind the one
that it did not survive. Each example has random numbers of its own, so any of them can be run alone:

    python tests/fuzz.py SUITE FIRST LAST

A suite is one of SUITES, or some of them one after another with their numbers of examples, which then share a
child: "sample=12 json=25".
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import functools
import io
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SEED = 20240607
SECONDS = 20.0  # that an example may take
STARTING = 300.0  # seconds until a child is ready: kernels may have to be compiled
EXITS = (0, 1, 2, 130)  # that the command documents

NORMAL = """
data { int<lower=0> n; array[n] real y; real<lower=0> scale; }
parameters { real mu; vector<lower=0>[2] tau; }
model { mu ~ normal(0, scale); tau ~ exponential(1); y ~ normal(mu, tau[1]); }
generated quantities { vector[n] log_lik; for (i in 1:n) log_lik[i] = normal_lpdf(y[i] | mu, tau[1]); }
"""
DATA: dict[str, Any] = {"n": 3, "y": [0.1, -0.4, 1.2], "scale": 2.0}
SHORT: dict[str, Any] = {"chains": 1, "warmup": 20, "draws": 8, "seed": 1, "workers": 1, "progress": False}
COMMON = ["--warmup=20", "--draws=8", "--chains=1", "--seed=1", "--no-progress"]


class Example(NamedTuple):
    """A call, and how to show it."""

    shown: str
    call: Callable[[], object]


class Unprintable:
    """Neither its text nor its comparison works."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def odd_values() -> list[Any]:
    """What no argument, or only some, may be."""
    import pandas
    import xarray

    return [
        *(None, True, False, 0, 1, 2, 3, -1, 2**31, 2**32, -(2**63), 10**400, 0.5, 1.0, -0.0, -3.7),
        *(float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, 1e101, 1j, "", " ", "x", "mu", "tau"),
        *("chain", "log_lik", "0", "nan", "\0", "\x1b[31m", "é" * 300, "a/b", "..", "{", "{}", "[1", "x\ny"),
        *(b"", b"x", [], [1], [[]], [None], ["mu"], ["mu", "mu"], ["x", 1], [[1.0, 2.0], [3.0]], (), (1, 2)),
        *({}, {"mu": 1.0}, {"mu": "x"}, {"mu": None}, {1: 2}, {"": 1}, {"mu": ["a"]}, {"tau": ["a", "b"]}),
        *({"tau": ["mu"]}, {"tau": ["chain"]}, {"n": -1, "y": [], "scale": 1.0}, {"tau": {"a": 1}}, set()),
        *({"mu": [1.0, float("nan")]}, {"tau": [1.0, -1.0]}, {"mu": 0.0, "tau": [1.0, 1.0]}, frozenset("ab")),
        *(
            range(3),
            object(),
            type,
            len,
            Unprintable(),
            Path(),
            Path("nowhere.stan"),
            datetime.date(2020, 1, 1),
        ),
        *(decimal.Decimal("0.5"), fractions.Fraction(1, 3), memoryview(b"abc"), io.StringIO("x"), iter([1])),
        *(
            np.array(3),
            np.array([]),
            np.zeros((1, 3)),
            np.zeros((2, 3)),
            np.full((1, 3), np.nan),
            np.int64(2),
        ),
        *(np.full((1, 3), 1e300), np.zeros((1, 3), dtype=object), np.array(["a"]), np.array([True]), np.nan),
        *(
            np.float32(0.5),
            np.bool_(True),
            np.datetime64("2020-01-01"),
            np.zeros((0, 3)),
            np.zeros((1, 3), "f2"),
        ),
        *(np.zeros((1, 3), complex), np.ma.masked_array([1.0], [True]), pandas.DataFrame({"mu": [1.0]})),
        *(pandas.Series([1.0, None]), pandas.NA, xarray.Dataset(), xarray.DataArray([1.0]), lambda: None),
        *(lambda *_: 0.0, lambda *_: "x", lambda *_: np.zeros((2, 2)), np.random.default_rng(1), Ellipsis),
    ]


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def pick(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


@functools.cache
def posterior() -> Any:
    import stanadapt

    return stanadapt.Posterior(NORMAL, DATA, backend="stanli")


@functools.cache
def fit() -> Any:
    import stanadapt

    return stanadapt.sample(
        posterior(), method="rwm", save_warmup=True, **(SHORT | {"draws": 20, "chains": 2})
    )


def _standard_normal(x: np.ndarray) -> float:
    return -0.5 * float(x @ x)


def _simulate(theta: Any, rng: np.random.Generator) -> float:
    return float(rng.normal(sum(np.sum(value) for value in theta.values()), 1.0))


def with_some(rng: np.random.Generator, values: list[Any], names: list[str]) -> dict[str, Any]:
    """One or two of the arguments with odd values."""
    chosen = rng.choice(names, size=int(rng.integers(1, 3)), replace=False)
    return {str(name): pick(rng, values) for name in chosen}


# ---- suites: from the random numbers and a folder of its own to an example


def arguments_of_sample(rng: np.random.Generator, folder: Path) -> Example:
    import stanadapt

    names = ["model", "data", "method", "settings", "chains", "warmup", "draws", "thin", "seed", "inits"]
    names += ["init_radius", "workers", "backend", "progress", "save_warmup", "coords", "dims"]
    names += ["log_likelihood", "posterior_predictive", "keep_unconstrained", "include_paths"]
    given = with_some(rng, odd_values(), names)
    if rng.random() < 0.2:
        given["method"] = pick(rng, ["nuts", "fisher_MALA", "hmc "])
    if rng.random() < 0.3:  # whose model is missing: compiling the kernels of all methods takes minutes
        method = pick(rng, list(stanadapt.methods().index))
        declared = [*stanadapt.methods(method).index, "x"]
        settings = {pick(rng, declared): pick(rng, odd_values())}
        given |= {"model": "nowhere.stan", "method": method, "settings": settings}
    if "model" in given and rng.random() < 0.3:
        given["model"] = NORMAL
    keywords: dict[str, Any] = {"model": posterior(), "method": "rwm"} | SHORT | given
    model = keywords.pop("model")
    text = f"sample({', '.join(f'{name}={shown(value)}' for name, value in given.items())})"
    return Example(text, lambda: stanadapt.sample(model, **keywords))


def arguments_of_results(rng: np.random.Generator, folder: Path) -> Example:
    import stanadapt

    values = odd_values()
    name = pick(rng, ["summary", "diagnose", "methods"])
    function = getattr(stanadapt, name)
    if name == "methods":
        value = pick(rng, [*values, "rwm", "nuts", "auto"])
        return Example(f"methods({shown(value)})", lambda: function(value))
    idata = pick(rng, values) if rng.random() < 0.4 else odd_result(rng)
    keywords = {}
    if rng.random() < 0.7:
        keywords["var_names"] = pick(rng, values)
    if name == "summary" and rng.random() < 0.5:
        keywords["interval"] = pick(rng, values)
    text = f"{name}({shown(idata)}, {', '.join(f'{key}={shown(value)}' for key, value in keywords.items())})"
    return Example(text, lambda: function(idata, **keywords))


def odd_result(rng: np.random.Generator) -> Any:
    """A result with some of its groups, variables, attributes or dimensions missing or of another kind."""
    from stanadapt.result.container import container, datasets

    groups = {name: group.copy(deep=True) for name, group in datasets(fit()).items()}
    for _ in range(int(rng.integers(1, 4))):
        name = pick(rng, ["posterior", "sample_stats", "adaptation", *sorted(groups)])
        if name not in groups:
            continue
        group = groups[name]
        change = int(rng.integers(7))
        if change == 0:
            del groups[name]
        elif change == 1 and group.data_vars:
            groups[name] = group.drop_vars(pick(rng, sorted(map(str, group.data_vars))))
        elif change == 2 and group.sizes:
            dim = pick(rng, sorted(map(str, group.sizes)))
            groups[name] = group.isel({dim: slice(0, int(rng.integers(3)))})
        elif change == 3 and group.sizes:
            groups[name] = group.isel({pick(rng, sorted(map(str, group.sizes))): 0})
        elif change == 4 and group.attrs:
            attribute = pick(rng, sorted(group.attrs))
            group.attrs[attribute] = pick(rng, ["", "x", "{}", "[1]", "{", 1, -1.5, "nan", "1"])
        elif change == 5 and group.data_vars:
            variable = pick(rng, sorted(map(str, group.data_vars)))
            kind = pick(rng, [str, object, bool, "f4", "i2", complex])
            if group[variable].dtype.kind in "biufc":  # texts are no numbers
                groups[name][variable] = group[variable].astype(kind)
        elif change == 6 and group.data_vars:
            variable = pick(rng, sorted(map(str, group.data_vars)))
            group[variable] = group[variable].expand_dims("another").transpose(..., "another")
        if not groups:
            break
    return container(groups)


def arguments_of_posterior(rng: np.random.Generator, folder: Path) -> Example:
    import stanadapt

    values = odd_values()
    points = [
        np.zeros(3),
        [0.0, 0.0, 0.0],
        np.full(3, np.nan),
        np.full(3, 1e300),
        np.zeros((2, 0, 3)),
        [1, 2],
    ]
    name = pick(rng, ["Posterior", "log_density", "log_density_gradient", "constrain", "unconstrain"])
    if name == "Posterior":
        given = with_some(rng, values, ["model", "data", "backend", "seed"])
        keywords = {"model": NORMAL, "data": DATA, "backend": "stanli"} | given
        text = ", ".join(f"{key}={shown(value)}" for key, value in given.items())
        return Example(f"Posterior({text})", lambda: stanadapt.Posterior(**keywords))
    method, given = getattr(posterior(), name), {}
    x = pick(rng, values + 10 * points)
    if name == "unconstrain":
        x = pick(rng, values)
    if name == "constrain":
        given = with_some(rng, values, ["transformed", "generated", "seed"])
    return Example(f"{name}({shown(x)}, **{shown(given)})", lambda: method(x, **given))


def arguments_of_targets(rng: np.random.Generator, folder: Path) -> Example:
    """Addresses are left out: what is no address of a function crashes, as it does everywhere."""
    import scipy.stats

    import stanadapt

    values = [value for value in odd_values() if not isinstance(value, int | np.integer) or value in (0, -1)]
    if rng.random() < 0.5:
        given = with_some(rng, values, ["log_density", "gradient", "names", "noisy", "threads"])
        if rng.random() < 0.3:
            given["dim"] = pick(rng, odd_values())
        keywords = {"log_density": _standard_normal, "dim": 2} | given
        text = ", ".join(f"{key}={shown(value)}" for key, value in given.items())
        own = callable(given.get("log_density")) or callable(given.get("gradient")) or given.get("noisy")

        def make() -> None:
            target = stanadapt.Target.from_python(**keywords)
            if not own and target.dim < 100:  # an error in a function of the user is the user's
                stanadapt.sample(target, method="rwm", **SHORT)

        return Example(f"Target.from_python({text})", make)
    normal = scipy.stats.norm(0, 1)
    priors = [*values, {"mu": normal}, {"x_dim_0": normal, "x": scipy.stats.norm([0, 1], 1)}, {"a/b": normal}]
    priors += [{"mu": scipy.stats.poisson(2)}, {"mu": scipy.stats.norm}, {"mu": 1}, {"": normal}, NORMAL]
    priors += [{"mu": scipy.stats.norm(0, -1)}, {"mu": scipy.stats.norm([], 1)}]
    names = ["observed", "epsilon", "n_sim", "kernel", "likelihood", "vectorized", "prior_data", "threads"]
    given = with_some(rng, values, names)
    if rng.random() < 0.5:
        given["prior"] = pick(rng, priors)
    if rng.random() < 0.3:
        given |= {
            "n_sim": int(rng.integers(-1, 7)),
            "likelihood": pick(rng, ["synthetic", "synthetic_plugin"]),
        }
        given["epsilon"] = None
    keywords = {"simulator": _simulate, "observed": 0.3, "prior": {"mu": normal}, "epsilon": 1.0} | given
    text = ", ".join(f"{key}={shown(value)}" for key, value in given.items())

    def sample() -> None:
        target = stanadapt.abc(**keywords)
        if int(keywords.get("n_sim", 1)) < 100:
            stanadapt.sample(target, method="rwm", **SHORT)

    return Example(f"abc({text})", sample)


def options(rng: np.random.Generator, folder: Path) -> Example:
    numbers = ["0", "1", "2", "-1", "1.5", "", "nan", "inf", "-inf", "1e308", "1e400", "0x10", "x", "١", " 1"]
    numbers += [str(2**31), str(2**32), str(2**64), "9" * 5_000, "--", "-", "1_0", "=", "\x1b[31m", "é", "{"]
    files = [program(folder), data_file(folder), result_file(folder), str(folder), "nowhere", "", "/dev/null"]
    files += ["a" * 300, "nowhere/fit.nc", "é.stan", "\x1b.stan", ".", "..", "/", "{}", "a\nb.stan"]
    names = ["mu", "tau", "tau[0]", "x", "", "chain", "log_lik", "\x1b[31m"]
    settings = [
        "step_size=1",
        "step_size",
        "=",
        "=1",
        "damping=nan",
        "target_accept=2",
        "target_accept=x",
        "x=1",
    ]
    settings += ["initial_step_size=none", "initial_step_size=1e400", "target_accept=0.3", "\x1b=1"]
    methods = ["rwm", "nuts", "rw", "", "RWM", "é"]
    starts = [*numbers, *files]
    of_sample = {
        "--data": files,
        "--method": methods,
        "--thin": numbers,
        "--init": starts,
        "--init-radius": numbers,
        "--workers": numbers,
        "--backend": ["auto", "stanli", "bridge", ""],
        "--include-path": files,
        "--set": settings,
        "--log-likelihood": names,
        "--posterior-predictive": names,
        "--out": [*files, str(folder / "out.nc")],
        "--chains": [text for text in numbers if text not in ("2147483648",)],
        "--draws": numbers,
        "--warmup": numbers,
        "--seed": numbers,
        "--save-warmup": None,
        "--keep-unconstrained": None,
        "--quiet": None,
        "--force": None,
    }
    of_others: dict[str, dict[str, Any]] = {
        "summary": {"--var": names, "--interval": numbers},
        "diagnose": {"--var": names},
        "methods": {},
        "check": {"--data": files, "--backend": ["auto", "x"], "--init-radius": numbers, "--seed": numbers},
    }
    command = pick(rng, ["sample", "sample", "sample", *of_others, "another"])
    if command == "sample":
        here = ["sample", program(folder), f"--data={data_file(folder)}", "--method=rwm", *COMMON]
        if rng.random() < 0.8:
            here += [f"--out={folder / 'out.nc'}", "--force"]
        known = of_sample
    else:
        first = {"methods": methods, "check": files, "another": files}.get(command, files)
        here, known = [command, pick(rng, first)], of_others.get(command, {})
        if command == "check" and rng.random() < 0.7:
            here = ["check", program(folder), f"--data={data_file(folder)}"]
        if command in ("summary", "diagnose") and rng.random() < 0.6:
            here = [command, result_file(folder)]
    for _ in range(int(rng.integers(1, 3))):
        if not known:
            break
        option = pick(rng, sorted(known))
        here += [option] if known[option] is None else [f"{option}={pick(rng, known[option])}"]
    if rng.random() < 0.1:
        here += [pick(rng, ["--nothing", "more", "-h", "--version", "--set"])]
    return Example(f"stanadapt {shown(here)}", lambda: command_line(here, folder))


def command_line(arguments: list[str], folder: Path) -> None:
    """Run the command; anything but a documented exit is a failure."""
    from click.testing import CliRunner

    from stanadapt import cli

    with contextlib.chdir(folder):
        said = CliRunner().invoke(cli.main, arguments)
    if said.exception is not None and not isinstance(said.exception, SystemExit):
        raise said.exception
    if said.exit_code not in EXITS:
        raise AssertionError(f"exit status {said.exit_code}")
    if "Traceback (most recent" in said.output:
        raise AssertionError(f"a traceback: {said.output[-2_000:]}")


def program(folder: Path) -> str:
    path = folder / "model.stan"
    if not path.exists():
        path.write_text(NORMAL)
    return str(path)


def data_file(folder: Path) -> str:
    path = folder / "data.json"
    if not path.exists():
        path.write_text(json.dumps(DATA))
    return str(path)


def result_file(folder: Path) -> str:
    from stanadapt.result import files

    path = folder / "fit.nc"
    if not path.exists():
        files.write(fit(), path)
    return str(path)


def result_files(rng: np.random.Generator, folder: Path) -> Example:
    """NetCDF files with bytes changed, cut off, without groups or attributes, or of another version."""
    path = folder / f"fit_{int(rng.integers(2**31))}.nc"
    how = pick(rng, ["bytes", "bytes", "bytes", "header", "cut", "delete", "delete", "netcdf3", "result"])
    if how == "netcdf3":
        import xarray

        array = xarray.Dataset({"mu": (("chain", "draw"), rng.normal(size=(2, 9)))})
        array.to_netcdf(path, engine="scipy")
    elif how == "result":
        from stanadapt.result import files

        result = odd_result(rng)
        with contextlib.suppress(Exception):  # what cannot be written is no file
            files.write(result, path)
        if not path.exists():
            path.write_bytes(b"")
    else:
        whole = bytearray(Path(result_file(folder)).read_bytes())
        if how == "cut":
            del whole[int(rng.integers(len(whole))) :]
        elif how != "delete":
            stop = 2_000 if how == "header" else len(whole)
            for _ in range(int(rng.integers(1, 30))):
                whole[int(rng.integers(stop))] = int(rng.integers(256))
        path.write_bytes(whole)
        if how == "delete":
            _delete_something(rng, path)
    use = pick(rng, ["summary", "diagnose", "init"])
    arguments = [use, str(path)]
    if use == "init":
        start = f"--init={path}"
        arguments = ["sample", program(folder), f"--data={data_file(folder)}", "--method=rwm", *COMMON, start]
        arguments += [f"--out={folder / 'out.nc'}", "--force"]
    return Example(f"{use} of a result with {how}: {path}", lambda: command_line(arguments, folder))


def _delete_something(rng: np.random.Generator, path: Path) -> None:
    import h5py

    with h5py.File(path, "a") as file:
        names: list[str] = []
        file.visit(names.append)
        for _ in range(int(rng.integers(1, 4))):
            name = pick(rng, [*names, "/"])
            if name not in file:
                continue
            attributes = sorted(file[name].attrs)
            if attributes and rng.random() < 0.6:
                del file[name].attrs[pick(rng, attributes)]
            elif name != "/":
                del file[name]


def json_texts(rng: np.random.Generator, folder: Path) -> Example:
    """Data and starting values as JSON, with characters changed, cut off, or values of another kind."""
    import stanadapt

    of_inits = rng.random() < 0.3
    values: dict[str, Any] = {"mu": 0.5, "tau": [1.0, 2.0]} if of_inits else dict(DATA)
    how = int(rng.integers(3))
    if how == 0:
        kinds = [
            None,
            True,
            "x",
            "NaN",
            "Infinity",
            [],
            {},
            [[1, 2], [3]],
            -1,
            1e400,
            10**30,
            [None],
            {"1": 2},
        ]
        values[pick(rng, sorted(values))] = pick(
            rng, [*kinds, "\x00", [[[]]], 2.5, [1, "a", 3], [0.1, 0.2, 0.3]]
        )
    text = json.dumps(values)
    if how == 1:
        text = text[: int(rng.integers(len(text)))]
    if how == 2:
        letters = list(text)
        for _ in range(int(rng.integers(1, 4))):
            letters[int(rng.integers(len(letters)))] = pick(rng, list('{}[]",:0-.eN \\\x00é/'))
        text = "".join(letters)
    path = folder / "given.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass") + (b"\xff" if rng.random() < 0.05 else b""))
    if of_inits:
        return Example(
            f"inits {shown(text)}",
            lambda: stanadapt.sample(posterior(), method="rwm", inits=str(path), **SHORT),
        )
    given = str(path) if rng.random() < 0.5 else text
    return Example(f"data {shown(text)}", lambda: stanadapt.Posterior(NORMAL, given, backend="stanli"))


def programs(rng: np.random.Generator, folder: Path) -> Example:
    """Stan programs with tokens deleted, doubled, swapped or replaced."""
    import stanadapt

    tokens = re.findall(r"\s+|\w+|[^\w\s]", NORMAL)
    words = [
        "real",
        "vector",
        "int",
        "array",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        "~",
        "0",
        "-1",
        "1e308",
        "mu",
        "n",
    ]
    words += [
        "matrix[2,2]",
        "simplex[2]",
        "tuple(int, real)",
        "normal",
        "for",
        "while (1)",
        "complex",
        "<",
        ">",
    ]
    words += [
        "transformed data",
        "functions",
        "fatal_error()",
        'reject("x")',
        'print("x")',
        "// ",
        "/*",
        "#include x",
    ]
    for _ in range(int(rng.integers(1, 4))):
        at, other = (int(i) for i in rng.integers(len(tokens), size=2))
        change = int(rng.integers(4))
        if change == 0:
            tokens[at] = ""
        elif change == 1:
            tokens[at] += " " + tokens[at]
        elif change == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            tokens[at] = pick(rng, words)
    code = "".join(tokens)

    def run() -> None:
        opened = stanadapt.Posterior(code, DATA, backend="stanli")
        stanadapt.sample(opened, method="rwm", **SHORT)

    return Example(f"program {code!r}", run)


def faults(rng: np.random.Generator, folder: Path) -> Example:
    """To see that the harness finds what it is for; each is shown as what it does."""

    def endless() -> None:
        while True:
            pass

    def undocumented() -> None:
        raise SystemExit(3)

    calls: dict[str, Callable[[], object]] = {
        "a raw error": lambda: {}["missing"],
        "a crash": os.abort,
        "a hang": endless,
        "an exit": undocumented,
        "nothing": lambda: None,
    }
    name = pick(rng, sorted(calls))
    return Example(name, calls[name])


SUITES: dict[str, Callable[[np.random.Generator, Path], Example]] = {
    "sample": arguments_of_sample,
    "results": arguments_of_results,
    "posterior": arguments_of_posterior,
    "targets": arguments_of_targets,
    "options": options,
    "result_files": result_files,
    "json": json_texts,
    "programs": programs,
}


# ---- the child


def run(suite: str, first: int, last: int) -> None:
    """Run examples first to last - 1, with a line on stdout before and after each."""
    report = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what programs print goes with the messages
    import stanadapt

    plan = _plan(suite, last)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if suite != "faults":
            fit()
            result_file(Path(folder))
        for place in range(first, last):
            name, i = plan[place]
            make = faults if name == "faults" else SUITES[name]
            example = make(np.random.default_rng([SEED, i]), Path(folder))
            shown = f"{name} {i}: {example.shown}"
            print(json.dumps({"begin": place, "shown": shown}), file=report)
            failure = ""
            try:
                example.call()
            except stanadapt.StanAdaptError as error:
                if not str(error).strip():
                    failure = f"{type(error).__name__} without a message"
            except BaseException:
                failure = traceback.format_exc()
            print(json.dumps({"end": place, "failure": failure}), file=report)


def _plan(suite: str, last: int) -> list[tuple[str, int]]:
    """The suite and the number there of each example."""
    parts = [part.partition("=") for part in suite.split()]
    return [(name, i) for name, _, count in parts for i in range(int(count or last))]


# ---- the parent


def failures(suite: str, count: int, seconds: float = SECONDS) -> list[str]:
    """What `count` examples of a suite should not have done, each with how to run it again."""
    found, next_one = [], 0
    while next_one < count:
        next_one, why = _of_one_child(suite, next_one, count, seconds)
        found += why
    return found


def _of_one_child(suite: str, first: int, count: int, seconds: float) -> tuple[int, list[str]]:
    """The failures that one child reports, and the example with which another one is to go on."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages:
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", __file__, suite, str(first), str(count)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        lines: queue.Queue[str | None] = queue.Queue()
        assert child.stdout is not None
        reader = threading.Thread(target=_read_lines, args=(child.stdout, lines))
        reader.start()
        found, at, example, limit = [], first - 1, f"{suite} {first - 1}: the start of the child", STARTING
        try:
            while (line := lines.get(timeout=limit)) is not None:
                said = json.loads(line)
                if "begin" in said:
                    at, example, limit = said["begin"], said["shown"], seconds
                else:
                    limit = STARTING
                    if said["failure"]:
                        found.append(f"{example}\n{said['failure']}")
        except queue.Empty:
            child.kill()
            found.append(f"{example}\nno end after {limit} seconds")
            return at + 1, found
        finally:
            child.wait()
            reader.join()
            child.stdout.close()
        if child.returncode == 0:
            return count, found
        messages.seek(0)
        found.append(f"{example}\nexit status {child.returncode}\n{messages.read()[-3_000:]}")
        return max(at, first) + 1, found


def _read_lines(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
