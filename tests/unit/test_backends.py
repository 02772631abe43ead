"""stanli, BridgeStan and ready libraries, and which of them a program goes to."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import shutil
import sys
import threading
import types
import urllib.request
import warnings
from pathlib import Path

import bridgestan.compile as bridgestan_compile
import numpy as np
import pytest
import stanli as stanli_package

import stanadapt
from stanadapt import model as model_room
from stanadapt.errors import ArgumentError, DataError, EvaluationError, ModelError, StanAdaptWarning
from stanadapt.model import backends, opening, plugins
from stanadapt.model.backends.contract import RefusedError
from stanadapt.model.backends.stan import bridgestan, native, stanli
from stanadapt.model.includes import ProgramText, write_in_place

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools"
NORMAL = "parameters { real x; } model { x ~ std_normal(); }"
WITH_TUPLE = NORMAL + " generated quantities { tuple(real, real) t = (x, 2.0); }"
needs_bridgestan = pytest.mark.skipif(
    not bridgestan.sources_present(), reason="BridgeStan's C++ sources are not on this machine"
)


@pytest.fixture
def no_sources(tmp_path, monkeypatch):
    """A machine without BridgeStan's sources and with an empty cache, where a download fails the test."""

    def download(*_):
        raise AssertionError("a download was tried")

    monkeypatch.delenv("BRIDGESTAN", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bridgestan_compile, "CURRENT_BRIDGESTAN", tmp_path / "nowhere")
    monkeypatch.setattr(urllib.request, "urlretrieve", download)
    return tmp_path


@pytest.fixture
def sources(tmp_path, monkeypatch, gaussian_libraries):
    """A stand-in for BridgeStan's sources: every program becomes the library of tests/native.

    Its Makefile writes its flags to a file `log`, and takes the library with threads if it is told to.
    """
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    folder = tmp_path / "sources"
    folder.mkdir()
    threads, processes = gaussian_libraries["threads"], gaussian_libraries["processes"]
    library = f"$(if $(filter true,$(STAN_THREADS)),{threads},{processes})"
    recipe = f"%_model.so: %.stan\n\t@echo '$(STANCFLAGS)' >> {folder}/log\n\tcp {library} $@\n"
    (folder / "Makefile").write_text(recipe)
    monkeypatch.setenv("BRIDGESTAN", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_stanli_is_the_default():
    posterior = stanadapt.Posterior(f"{SCHOOLS}.stan", f"{SCHOOLS}.json")
    assert posterior.library == f"stanli {stanli_package.__version__}"
    assert posterior.model.thread_safe


def test_syntax_error_is_no_reason_to_try_another_backend(monkeypatch):
    monkeypatch.setattr(bridgestan, "open_program", None)  # calling it would be a TypeError
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ModelError, match=r"does not compile[\s\S]*line 2"):
            stanadapt.Posterior("parameters { real x; }\nmodel { x ~ normal(0, 1) }")


def test_data_that_do_not_fit_are_no_reason_to_try_another_backend(monkeypatch):
    monkeypatch.setattr(bridgestan, "open_program", None)
    code = 'transformed data { reject("no such data"); } ' + NORMAL
    with pytest.raises(DataError, match="no such data"):
        stanadapt.Posterior("data { int n; } " + code, {"n": 1})
    with pytest.raises(ModelError, match="it has no data: no such data"):
        stanadapt.Posterior(code)


def test_auto_falls_back_and_says_so(sources):
    with pytest.warns(StanAdaptWarning, match="does not cover tuples.*BridgeStan instead") as caught:
        posterior = stanadapt.Posterior(WITH_TUPLE)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert posterior.library.startswith("bridgestan")


# stanli covers neither, and does not say so in one form of words.
REFUSED = {
    "fatal_error": 'parameters { real x; } model { if (x > 9) fatal_error("x"); x ~ std_normal(); }',
    "fatal_error in data": 'transformed data { if (1 > 2) fatal_error("x"); else fatal_error("y"); }'
    + NORMAL,
    "gaussian_dlm_obs": """parameters { real<lower=0> s; } model {
        [[1.0, 2.0]] ~ gaussian_dlm_obs([[1.0]], [[1.0]], [s]', [[s]], [0.0]', [[1.0]]); }""",
    "index": "transformed data { array[1] int z = {1}; int i = 2; int a = z[i]; }" + NORMAL,
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_to_be_about_data_falls_back(code, sources):
    with pytest.warns(StanAdaptWarning, match=r"(does not cover|cannot be opened).*BridgeStan instead"):
        assert stanadapt.Posterior(code).library.startswith("bridgestan")


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_to_be_about_data_has_both_reasons(code, no_sources):
    with pytest.raises(
        ModelError, match=r"(does not cover|cannot be opened).*BridgeStan's C\+\+ sources are not on this"
    ):
        stanadapt.Posterior(code)


def test_data_that_no_backend_takes_have_both_reasons(sources):
    code = "data { int fail; } " + REFUSED["index"]
    with (
        pytest.warns(StanAdaptWarning),
        pytest.raises(DataError, match=r"fail is no data.*index 2 out of bounds for size 1"),
    ):
        stanadapt.Posterior(code, {"fail": 1})


CONSTRAINTS = {
    "bound": ("data { int<lower=1> N; } ", {"N": 0}, "greater than or equal to 1"),
    "type": ("data { simplex[2] s; } ", {"s": [1, 1]}, "not a valid simplex"),
    "transformed": ("data { int N; } transformed data { int<upper=3> M = N; } ", {"N": 4}, "M is 4"),
    "domain": ("data { real s; } transformed data { real a = normal_lpdf(1 | 0, s); } ", {"s": -1}, "Scale"),
}


@pytest.mark.parametrize(("code", "data", "reason"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_data_outside_of_their_support_are_no_reason_to_compile(code, data, reason, monkeypatch):
    monkeypatch.setattr(bridgestan, "open_program", None)
    with pytest.raises(DataError, match=reason):
        stanadapt.Posterior(code + NORMAL, data)


@pytest.mark.parametrize("backend", ["auto", "bridgestan"])
def test_nuts_refuses_before_a_compiler_is_started(backend, sources):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ArgumentError, match=r"method='nuts' cannot run this program.*gaussian_dlm_obs"):
            stanadapt.sample(REFUSED["gaussian_dlm_obs"], method="nuts", backend=backend, progress=False)
    assert not (sources / "log").exists()


def test_the_compiler_starts_apart_from_jax(monkeypatch):
    """XLA may leave it a process that it cannot start in; what it says there is the same."""
    here = stanli._intermediate(NORMAL)
    with pytest.raises(RuntimeError) as said_here:
        stanli._intermediate("parameters { real x; } model { y ~ std_normal(); }")
    monkeypatch.setattr(stanli, "_begun", False)
    monkeypatch.setitem(sys.modules, "jaxlib", types.ModuleType("jaxlib"))
    monkeypatch.setattr(stanli_package, "stan_to_mir", None)  # is not to be called in this process
    assert stanli._intermediate(NORMAL) == here
    with pytest.raises(RuntimeError) as said_apart:
        stanli._intermediate("parameters { real x; } model { y ~ std_normal(); }")
    assert str(said_apart.value) == str(said_here.value)
    with pytest.raises(RuntimeError, match="ended with status 1"):
        stanli._intermediate(3)


def test_stanli_alone_does_not_fall_back(sources):
    with pytest.raises(ModelError, match="does not cover tuples"):
        stanadapt.Posterior(WITH_TUPLE, backend="stanli")
    assert not (sources / "log").exists()


def test_when_no_backend_can_both_reasons_are_given(no_sources):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is compiled, so nothing says that it is
        with pytest.raises(ModelError) as caught:
            stanadapt.Posterior(WITH_TUPLE)
    assert "no backend" in str(caught.value)
    assert "does not cover tuples, line" in str(caught.value)
    assert "BridgeStan's C++ sources are not on this machine" in str(caught.value)


@pytest.fixture
def another_backend(monkeypatch):
    """A backend "other", as its file and its names in the tables make it; its models come from stanli."""

    def adopt(model, data):
        return (
            (stanli.open_program(ProgramText(NORMAL), "{}", 0), {"n": data}) if model == ["other"] else None
        )

    def open_program(program, data, seed):
        model = stanli.open_program(ProgramText(NORMAL), "{}", seed)
        model.library = "other 1.0"
        return model

    file = types.SimpleNamespace(
        ATTEMPT="Guessing it", adopt=adopt, is_at_hand=lambda *_: True, open_program=open_program
    )
    monkeypatch.setitem(sys.modules, f"{backends.__name__}.other", file)
    programs = {"stanli": "stan.stanli", "other": "other", "bridgestan": "stan.bridgestan"}
    monkeypatch.setattr(opening, "PROGRAM_BACKENDS", programs)
    monkeypatch.setattr(opening, "OBJECT_BACKENDS", (*model_room.OBJECT_BACKENDS, "other"))
    monkeypatch.setattr(opening, "BACKENDS", ("auto", *programs))
    monkeypatch.setattr(plugins, "BACKENDS", ("auto", *programs))


def test_a_backend_is_a_file_and_a_line(another_backend):
    assert stanadapt.Posterior(WITH_TUPLE, backend="other").library == "other 1.0"
    with pytest.warns(StanAdaptWarning, match=r"tuples.*Guessing it instead"):
        assert stanadapt.Posterior(WITH_TUPLE).library == "other 1.0"
    assert stanadapt.Posterior(NORMAL).library.startswith("stanli")
    assert stanadapt.Posterior(["other"], 3).data == {"n": 3}


@pytest.mark.parametrize("name", model_room.PROGRAM_BACKENDS.values())
def test_backends_of_programs_have_what_they_need(name):
    file = importlib.import_module(f"{backends.__name__}.{name}")
    assert callable(file.is_at_hand)
    assert callable(file.open_program)
    assert file.ATTEMPT


@pytest.mark.parametrize("name", model_room.OBJECT_BACKENDS)
@pytest.mark.parametrize("model", [None, NORMAL, Path("model.stan"), 3.0])
def test_backends_of_objects_leave_other_models_alone(name, model):
    assert importlib.import_module(f"{backends.__name__}.{name}").adopt(model, None) is None


@pytest.mark.parametrize("output", ["vector[0] z;", "{ real a = 1; }", ""])
def test_generated_quantities_without_values_are_no_reason_to_refuse(output):
    code = NORMAL + " generated quantities { " + output + " }"
    assert list(stanadapt.Posterior(code, backend="stanli").variables) == ["x"]


def test_the_log_is_for_the_program_only(capfd, caplog):
    with pytest.raises(RefusedError):
        stanadapt.Posterior(WITH_TUPLE, backend="stanli")
    stanadapt.Posterior('transformed data { print("from the program"); } ' + NORMAL)
    assert caplog.messages == ["from the program"]
    assert capfd.readouterr().out == ""


def test_note_of_stanli_becomes_a_warning(monkeypatch):
    opened = stanli_package.bridgestan_model

    def with_note(**keywords):
        said = b"stanli: this will be slow. Please report this at a long address\n"
        native._print(said, len(said))
        return opened(**keywords)

    monkeypatch.setattr(stanli_package, "bridgestan_model", with_note)
    with pytest.warns(StanAdaptWarning, match=r"^stanli: this will be slow\.$"):
        stanadapt.Posterior(NORMAL)


def test_program_is_compiled_for_threads_and_once(sources):
    first = stanadapt.Posterior(NORMAL, backend="bridgestan")
    assert first.model.thread_safe
    assert first.library.startswith("bridgestan")
    stanadapt.Posterior(NORMAL, backend="bridgestan")
    assert len((sources / "log").read_text().splitlines()) == 1


@pytest.mark.parametrize("change", ["program", "include", "nested", "flags", "version", "sources"])
def test_whatever_goes_in_names_the_library(change, sources, tmp_path, monkeypatch):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "outer.stan").write_text("#include inner.stan\n")
    (folder / "inner.stan").write_text("// nothing\n")
    code = "functions {\n#include outer.stan\n}\n" + NORMAL
    before = bridgestan.compile_library(write_in_place(code, folder))
    assert bridgestan.compile_library(write_in_place(code, folder)) == before
    if change == "program":
        code += "\n"
    elif change == "include":
        (folder / "outer.stan").write_text("#include inner.stan\n// more\n")
    elif change == "nested":
        (folder / "inner.stan").write_text("// something\n")
    elif change == "flags":
        monkeypatch.setattr(bridgestan, "MAKE_ARGS", ("STAN_THREADS=true", "STAN_OPENCL=true"))
    elif change == "version":
        monkeypatch.setattr(bridgestan.bridgestan, "__version__", "99.0.0")
    else:
        shutil.copytree(sources, tmp_path / "others")
        monkeypatch.setenv("BRIDGESTAN", str(tmp_path / "others"))
    after = bridgestan.compile_library(write_in_place(code, folder))
    assert after.exists()
    assert after != before


def test_failed_build_leaves_nothing_and_its_error_is_shown(sources, tmp_path, capfd):
    recipe = "%_model.so: %.stan\n\t@echo half > $@\n\t@echo 'chatter'\n\t@no-such-compiler $<\n"
    (sources / "Makefile").write_text(recipe)
    with pytest.raises(
        ModelError, match=r"BridgeStan cannot compile the program[\s\S]*no-such-compiler"
    ) as caught:
        stanadapt.Posterior(NORMAL, backend="bridgestan")
    assert "chatter" not in str(caught.value)
    assert list((tmp_path / "cache" / "stanadapt" / "models").iterdir()) == []
    assert capfd.readouterr().out == ""


def test_errors_of_a_long_build_are_found():
    noise = [f"note {i}" for i in range(1000)]
    lines = [*noise, "program.hpp:12: error: no such thing", *noise, "make: *** [program.hpp] Error 1"]
    shown = bridgestan._shorten("Command make failed\nstdout:\nchatter\nstderr:\n" + "\n".join(lines))
    assert "no such thing" in shown
    assert "Error 1" in shown
    assert len(shown.splitlines()) <= 20


def test_missing_make_is_named(sources, monkeypatch):
    monkeypatch.setattr(bridgestan_compile, "MAKE", "no-such-make")
    with pytest.raises(ModelError, match=r"BridgeStan cannot compile the program[\s\S]*no-such-make"):
        stanadapt.Posterior(NORMAL, backend="bridgestan")


def test_missing_sources_give_an_error_and_no_download(no_sources, capfd):
    assert not bridgestan.sources_present()
    with pytest.raises(ModelError, match=r"sources are not on this machine[\s\S]*To download them"):
        stanadapt.Posterior(NORMAL, backend="bridgestan")
    assert capfd.readouterr().out == ""


def test_wrong_folder_of_sources_is_named(no_sources, monkeypatch):
    monkeypatch.setenv("BRIDGESTAN", str(no_sources / "elsewhere"))
    assert not bridgestan.sources_present()
    with pytest.raises(ModelError, match=r"BRIDGESTAN is .*elsewhere"):
        stanadapt.Posterior(NORMAL, backend="bridgestan")


@pytest.mark.toolchain
@needs_bridgestan
def test_bridgestan_agrees_with_stanli():
    program, data = f"{SCHOOLS}.stan", f"{SCHOOLS}.json"
    ours = stanadapt.Posterior(program, data)
    theirs = stanadapt.Posterior(program, data, backend="bridgestan")
    x = np.random.default_rng(1).standard_normal(ours.dim)
    zero = np.zeros(ours.dim)
    value, score = theirs.log_density_gradient(x)
    # Up to a constant, which stanli may drop differently.
    np.testing.assert_allclose(score, ours.log_density_gradient(x)[1], rtol=1e-10)
    assert value - theirs.log_density(zero) == pytest.approx(ours.log_density(x) - ours.log_density(zero))
    assert theirs.names == ours.names
    assert theirs.model.thread_safe


@pytest.mark.toolchain
@needs_bridgestan
def test_bridgestan_covers_tuples():
    with pytest.warns(StanAdaptWarning, match="BridgeStan instead"):
        posterior = stanadapt.Posterior(WITH_TUPLE)
    assert list(posterior.generated_quantities) == ["t:1", "t:2"]


@pytest.mark.toolchain
@needs_bridgestan
def test_bridgestan_shows_stans_own_error():
    with pytest.raises(ModelError, match="error"):
        stanadapt.Posterior("parameters { real x }", backend="bridgestan")


def test_ready_library_opens(gaussian_libraries):
    posterior = stanadapt.Posterior(gaussian_libraries["threads"], {"who": 1})
    assert posterior.names == ["x.1", "x.2", "sigma"]
    x = np.array([0.5, -1.0, 2.0])
    assert posterior.log_density(x) == pytest.approx(-0.5 * x @ x)
    np.testing.assert_allclose(posterior.log_density_gradient(x)[1], -x)
    assert posterior.split_data()[1]["who"] == 1


def test_library_says_whether_threads_are_safe(gaussian_libraries):
    assert stanadapt.Posterior(gaussian_libraries["threads"]).model.thread_safe
    assert not stanadapt.Posterior(gaussian_libraries["processes"]).model.thread_safe


def test_message_of_a_library_comes_through(gaussian_libraries):
    with pytest.raises(DataError, match="fail is no data of this program"):
        stanadapt.Posterior(gaussian_libraries["threads"], {"fail": 1})
    posterior = stanadapt.Posterior(gaussian_libraries["threads"], {"reject": 1})
    with pytest.raises(stanadapt.errors.EvaluationError, match="x is above one"):
        posterior.log_density([1.5, 0.0, 0.0])


MESSAGES = {
    "log_density() failed with exception: Exception: x is 2 (in '/a/b-1/model/program.stan', line 3)": (
        "x is 2 (in the program, line 3)"
    ),
    'construct({"N": (0)}, 1) failed with exception: \nException: Exception: N is 0': "N is 0",
    "f() failed with exception: half (in 'mine.stan', line 1)": "half (in 'mine.stan', line 1)",
    "x is above one": "x is above one",
}


@pytest.mark.parametrize(("message", "plain"), MESSAGES.items())
def test_messages_of_bridgestan_are_put_in_plain_words(message, plain, monkeypatch, gaussian_libraries):
    assert native.in_plain_words(message) == plain
    posterior = stanadapt.Posterior(gaussian_libraries["threads"])

    def fail(*_, **__):
        raise RuntimeError(message)

    for name in ("log_density", "log_density_gradient", "param_unconstrain"):
        monkeypatch.setattr(posterior.model.model, name, fail)
    for function in (posterior.log_density, posterior.log_density_gradient):
        with pytest.raises(EvaluationError, match=f"evaluated: {re.escape(plain)}$"):
            function(np.zeros(3))
    with pytest.raises(ArgumentError, match=f"support: {re.escape(plain)}$"):
        posterior.unconstrain({"x": [0, 0], "sigma": 1})


def test_threads_print_whole_lines(caplog):
    """What a program prints comes in parts, from any thread."""
    ready, done = threading.Event(), threading.Event()

    def other():
        native._print(b"other ", 6)
        ready.set()
        done.wait()
        native._print("ä\n".encode(), 3)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    native._print(b"this ", 5)
    native._print(b"line\nand ", 9)
    done.set()
    thread.join()
    native._print(b"more\n", 5)
    assert caplog.messages == ["this line", "other ä", "and more"]


@pytest.mark.parametrize("adopt", [False, True])
def test_print_of_a_library_comes_in_whole_lines(adopt, gaussian_libraries, caplog):
    library = gaussian_libraries["threads"]
    model = bridgestan.bridgestan.StanModel(library, {"print": 1}, warn=False) if adopt else library
    posterior = stanadapt.Posterior(model, None if adopt else {"print": 1})
    threads = [
        threading.Thread(target=lambda i=i: [posterior.log_density([i, 0, 0]) for _ in range(200)])
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(caplog.messages) == ["x is 0"] * 200 + ["x is 1"] * 200


TUPLES = {
    "tuples": {"tuples": [(1, 2.5), (3, 4.5)]},
    "ragged tuples": {"tuples": [(1, [2.5]), (3, [4.5])]},
    "dicts": {"tuples": [{"1": 1, "2": 2.5}, {1: 3, 2: 4.5}]},
    "text": '{"tuples": [{"1": 1, "2": 2.5}, {"1": 3, "2": 4.5}]}',
}


@pytest.mark.parametrize("data", TUPLES.values(), ids=TUPLES)
def test_arrays_of_tuples_reach_a_library(data, gaussian_libraries):
    posterior = stanadapt.Posterior(gaussian_libraries["threads"], data)
    assert [list(part) for part in posterior.data["tuples"]] == [["1", "2"], ["1", "2"]]
    assert posterior.split_data() == ({}, {})
    pickle.loads(pickle.dumps(posterior))


def test_arrays_of_tuples_in_an_open_model(gaussian_libraries):
    data = {"tuples": [{"1": 1, "2": 2.5}]}
    theirs = bridgestan.bridgestan.StanModel(gaussian_libraries["threads"], data, warn=False)
    assert stanadapt.Posterior(theirs).data == data


def test_file_that_is_no_library(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("not a library")
    with pytest.raises(ModelError, match=r"text\.so.*is not a library that BridgeStan"):
        stanadapt.Posterior(path)


def test_library_without_bridgestans_functions(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, path = tmp_path / "empty.c", tmp_path / "empty.so"
    source.write_text("int nothing = 1;\n")
    bridgestan_compile.subprocess.run([compiler, "-shared", "-fPIC", source, "-o", path], check=True)
    with pytest.raises(ModelError, match=r"(?s)empty\.so.*bs_model_construct"):
        stanadapt.Posterior(path)


def test_missing_library(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        stanadapt.Posterior(tmp_path / "gone.so")


def test_open_model_of_stanli_is_accepted():
    data = json.loads(Path(f"{SCHOOLS}.json").read_text())
    theirs = stanli_package.bridgestan_model(stan_code=Path(f"{SCHOOLS}.stan").read_text(), data=data)
    adopted = stanadapt.Posterior(theirs)
    ours = stanadapt.Posterior(f"{SCHOOLS}.stan", data)
    x = np.linspace(-1.0, 1.0, ours.dim)
    assert adopted.library == ours.library
    assert adopted.log_density(x) == ours.log_density(x)
    assert set(adopted.split_data()[1]) == {"J", "y", "sigma"}
    assert adopted.digest() == stanadapt.Posterior(theirs).digest()
    with pytest.raises(DataError, match="opened with its data"):
        stanadapt.Posterior(theirs, data)


def test_open_model_of_bridgestan_is_accepted(gaussian_libraries):
    theirs = bridgestan.bridgestan.StanModel(gaussian_libraries["threads"], {"who": 1}, warn=False)
    adopted = stanadapt.Posterior(theirs)
    assert adopted.library.startswith("bridgestan")
    assert adopted.log_density(np.ones(3)) == -1.5
    assert adopted.digest() == stanadapt.Posterior(gaussian_libraries["threads"]).digest()
    assert adopted.digest() != stanadapt.Posterior(gaussian_libraries["processes"]).digest()


def test_cmdstan_model_by_its_stan_file():
    """CmdStanPy's own object cannot be made without CmdStan: what is read of it are these two attributes."""
    model = types.SimpleNamespace(stan_file=f"{SCHOOLS}.stan", exe_file="/nowhere/eight_schools")
    posterior = stanadapt.Posterior(model, f"{SCHOOLS}.json")
    assert posterior.dim == 10
    with pytest.raises(ModelError, match="its Stan file is needed"):
        stanadapt.Posterior(types.SimpleNamespace(stan_file=None, exe_file="/nowhere/eight_schools"))
