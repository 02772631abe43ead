"""Files that a program includes: where they are looked for, and which lines messages name."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import cmdstanpy
import numpy as np
import pytest
from click.testing import CliRunner

import stanadapt
from stanadapt import cli
from stanadapt.errors import ArgumentError, ModelError
from stanadapt.model.backends.stan import native
from stanadapt.model.includes import Line, in_files, write_in_place
from stanadapt.model.program import data_declarations

NORMAL = "parameters { real x; } model { x ~ normal(0, 1); }"
MAIN = """functions {
#include "shapes/half.stan"

}
parameters { real x; }
model { half(x) ~ std_normal(); }
"""


def write(folder: Path, **files: str) -> Path:
    """A program, `main`, with files that it includes; `__` in their names stands for a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.stan"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "main.stan"


def gradient(model: object, **keywords: object) -> float:
    return float(stanadapt.Posterior(model, **keywords).log_density_gradient([2.0])[1][0])


def test_a_file_is_looked_for_beside_the_one_that_includes_it(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main=MAIN,
        shapes__half='#include "parts/share.stan"\nreal half(real x) { return share() * x; }\n',
        shapes__parts__share="real share() { return 0.5; }",
    )
    assert gradient(main) == pytest.approx(-0.5)


def test_the_nearest_file_comes_first(tmp_path: Path) -> None:
    """Beside the including file, beside the program, in include_paths in their order."""
    shares = {"shapes__share": 0.5, "share": 0.25, "one__share": 0.125, "two__share": 0.0625}
    files = {name: f"real share() {{ return {share}; }}\n" for name, share in shares.items()}
    files["shapes__half"] = "#include share.stan\nreal half(real x) { return share() * x; }\n"
    main = write(tmp_path, main=MAIN, **files)
    folders = [tmp_path / "one", str(tmp_path / "two")]
    for name, share in shares.items():
        assert gradient(main, include_paths=folders) == pytest.approx(-2 * share**2)
        (tmp_path / f"{name.replace('__', '/')}.stan").unlink()
    with pytest.raises(ModelError) as caught:
        stanadapt.Posterior(main, include_paths=folders)
    assert str(caught.value) == (
        f"model: line 1 of shapes/half.stan includes 'share.stan', which is in none of {tmp_path}/shapes, "
        f"{tmp_path}, {tmp_path}/one, {tmp_path}/two, {Path.cwd()}; include_paths=[...] names more folders"
    )


def test_a_text_may_include_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, shapes__half="real half(real x) { return x / 2; }\n")
    assert gradient(MAIN, include_paths=tmp_path) == pytest.approx(-0.5)
    monkeypatch.chdir(tmp_path)
    assert gradient(MAIN) == pytest.approx(-0.5)


def test_include_paths_in_every_door(tmp_path: Path) -> None:
    main = write(tmp_path / "program", main=MAIN)
    write(tmp_path / "library", shapes__half="real half(real x) { return x / 2; }\n")
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False}
    with pytest.warns(stanadapt.StanAdaptWarning):
        idata = stanadapt.sample(main, include_paths=tmp_path / "library", **run)
    assert idata["posterior"].sizes["draw"] == 4
    given = ["--include-path", str(tmp_path / "library")]
    done = CliRunner().invoke(cli.main, ["check", str(main), *given])
    assert done.exit_code == 0, done.output
    fast = [
        "--chains",
        "1",
        "--draws",
        "4",
        "--warmup",
        "5",
        "--method",
        "rwm",
        "--out",
        str(tmp_path / "f.nc"),
    ]
    done = CliRunner().invoke(cli.main, ["sample", str(main), *given, *fast])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli.main, ["check", str(main)])
    assert done.exit_code == 1
    assert "line 2 includes 'shapes/half.stan', which is in none of" in done.output


APART = """
functions {
#include "shapes/half.stan"
}
data { real y; }
parameters { real x; }
transformed parameters { real h = half(x); }
model { x ~ std_normal(); y ~ normal(h, 1); }
"""


def test_include_paths_without_sampling(tmp_path: Path) -> None:
    """Of what approximates, draws from the prior or takes earlier draws; each as a command too."""
    main = write(tmp_path / "program", main=APART)
    write(tmp_path / "library", shapes__half="real half(real x) { return x / 2; }\n")
    library, data = tmp_path / "library", {"y": 1.0}
    keywords = {"seed": 1, "progress": False, "include_paths": library}
    assert stanadapt.optimize(main, data, **keywords)["posterior"]["x"].item() == pytest.approx(0.4)
    for approximate in (stanadapt.laplace, stanadapt.pathfinder):
        fit = approximate(main, data, draws=100, **keywords)
    generated = stanadapt.generate_quantities(main, fit, data, **keywords)["posterior"]
    np.testing.assert_array_equal(generated["h"].values, generated["x"].values / 2)
    short = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4}
    with pytest.warns(stanadapt.StanAdaptWarning):
        prior = stanadapt.prior_predictive(main, data, **short, **keywords)
    assert json.loads(prior.attrs["likelihood_statements"]) == ["y ~ normal(h, 1);"]
    with pytest.raises(ArgumentError, match="include_paths are not allowed with a Posterior"):
        stanadapt.prior_predictive(
            stanadapt.Posterior(main, data, include_paths=library), include_paths=library
        )


@pytest.mark.parametrize("command", ["optimize", "laplace", "pathfinder", "prior"])
def test_include_path_in_a_shell(command: str, tmp_path: Path) -> None:
    main = write(tmp_path / "program", main=APART)
    write(tmp_path / "library", shapes__half="real half(real x) { return x / 2; }\n")
    data, out = tmp_path / "data.json", str(tmp_path / "out.nc")
    data.write_text('{"y": 1}')
    given = ["--data", str(data), "--include-path", str(tmp_path / "library"), "--seed", "1", "--quiet"]
    short = ["--method", "rwm", "--warmup", "5", "--draws", "4"] if command == "prior" else []
    done = CliRunner().invoke(cli.main, [command, str(main), *given, *short, "--out", out])
    assert done.exit_code == 0, done.output
    if command == "laplace":
        more = ["generate", str(main), out, *given, "--out", str(tmp_path / "more.nc")]
        done = CliRunner().invoke(cli.main, more)
        assert done.exit_code == 0, done.output


def test_the_folders_of_a_model_of_cmdstanpy_are_looked_at(tmp_path: Path) -> None:
    main = write(tmp_path / "program", main=MAIN)
    write(tmp_path / "library", shapes__half="real half(real x) { return x / 2; }\n")
    options = {"include-paths": [str(tmp_path / "library")]}
    model = SimpleNamespace(stan_file=str(main), exe_file=None, stanc_options=options)
    assert hasattr(cmdstanpy.CmdStanModel, "stanc_options")
    assert gradient(model) == pytest.approx(-0.5)


REFUSED = {
    "number": (3, "include_paths=3 is not allowed: include_paths must be a folder or a list of folders"),
    "numbers": ([3], "a folder or a list of folders"),
    "no folder": (["nowhere"], "include_paths='nowhere' is not allowed: there is no such folder"),
    "NUL": ("a\0b", "there is no such folder"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_folders(what: str) -> None:
    given, said = REFUSED[what]
    with pytest.raises(ArgumentError, match=re.escape(said)):
        stanadapt.Posterior(NORMAL, include_paths=given)


def test_models_that_include_nothing_take_no_folders(tmp_path: Path) -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), dim=1)
    with pytest.raises(ArgumentError, match="include_paths are not allowed with a model that is no Stan"):
        stanadapt.Posterior(target, include_paths=tmp_path)
    opened = stanadapt.Posterior(NORMAL)
    with pytest.raises(ArgumentError, match="include_paths are not allowed with a Posterior"):
        stanadapt.sample(opened, include_paths=tmp_path)
    with pytest.raises(ArgumentError, match="include_paths are not allowed with a library"):
        stanadapt.Posterior(tmp_path / "a_model.so", include_paths=tmp_path)


def test_includes_are_written_in_place(tmp_path: Path) -> None:
    write(tmp_path, sizes="int N;\n#include <more.stan>\n", more="vector[N] v; // #include nothing.stan\n")
    code = 'data {\n#include "sizes.stan"\n} // #include sizes.stan\n/* #include sizes.stan */'
    program = write_in_place(code, tmp_path)
    assert list(data_declarations(program.code)) == ["N", "v"]
    assert program.code.count("vector[N] v") == 1
    outer = Line("sizes.stan", 2, Line("", 2))
    told = dict(zip(program.code.splitlines(), program.lines, strict=True))
    assert told["data {"] == Line("", 1)
    assert told["int N;"] == Line("sizes.stan", 1, Line("", 2))
    assert told["vector[N] v; // #include nothing.stan"] == Line("more.stan", 1, outer)
    assert told["} // #include sizes.stan"] == Line("", 3)


def test_a_program_without_includes_stays(tmp_path: Path) -> None:
    assert write_in_place(NORMAL, tmp_path) == (NORMAL, ())


def test_a_circle_is_told(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main=f"\n#include a.stan\n{NORMAL}",
        a="// a\n#include sub/b.stan\n",
        sub__b="#include ../c.stan\n",
        c="#include sub/b.stan",
    )
    with pytest.raises(ModelError) as caught:
        stanadapt.Posterior(main)
    assert str(caught.value) == (
        "model: the Stan program includes a file in itself: sub/b.stan (included in line 2 of a.stan), then "
        "c.stan (included in line 1 of sub/b.stan), then sub/b.stan (included in line 1 of c.stan)"
    )


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    main = write(tmp_path, main=f"#include a.stan\n{NORMAL}")
    (tmp_path / "a.stan").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ModelError, match=r"line 1 includes .*a\.stan, which cannot be read: .*utf-8"):
        stanadapt.Posterior(main)
    (tmp_path / "a.stan").write_text("// \0")
    with pytest.raises(ModelError, match=r"line 1 includes .*a\.stan, which has a NUL"):
        stanadapt.Posterior(main)


def test_errors_name_the_line_of_the_included_file(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="functions {\n  #include a.stan\n}\n" + NORMAL,
        a="// first\n\n#include deep/b.stan\nreal g() { return 1; }\n",
        deep__b="real f(real x) {\n  // here\n  return y;\n}\n",
    )
    with pytest.raises(ModelError) as caught:
        stanadapt.Posterior(main)
    lines = str(caught.value).splitlines()
    assert lines[1] == (
        "Semantic error in 'deep/b.stan', line 3, column 9 to column 10, included from 'a.stan', line 3, "
        "included from 'string', line 2:"
    )
    excerpt = [line for line in lines if re.match(r" *\d+:", line)]
    assert excerpt == [
        "     1:  real f(real x) {",
        "     2:    // here",
        "     3:    return y;",
        "     4:  }",
    ]
    assert lines[lines.index(excerpt[2]) + 1].strip() == "^"


def test_errors_after_includes_name_the_line_of_the_program(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="functions {\n#include a.stan\n#include b.stan\n}\n"
        f"{NORMAL}\ngenerated quantities {{ real z = y; }}",
        a="// one\n// two\n// three\n",
        b="// four",
    )
    with pytest.raises(ModelError, match=r"in 'string', line 6, column 32 to column 33:\n") as caught:
        stanadapt.Posterior(main)
    assert "     5:  parameters { real x; }" in str(caught.value)
    assert "three" not in str(caught.value)


def test_messages_of_libraries_name_the_included_file(tmp_path: Path) -> None:
    write(tmp_path, a="real f(real x) {\n  return sqrt(-x);\n}\n")
    program = write_in_place("functions {\n#include a.stan\n}\n" + NORMAL, tmp_path)
    said = "f: x is bad (in '/tmp/scratch/model/program.stan', line 3, column 2 to line 4, column 5)"
    assert native.in_plain_words(said, program) == (
        "f: x is bad (in 'a.stan', line 2, column 2 to line 3, column 5, included from the program, line 2)"
    )
    assert native.in_plain_words(said) == said.replace("'/tmp/scratch/model/program.stan'", "the program")
    assert in_files("no line at all", program) == "no line at all"
    assert in_files("in 'string', line 99, column 1", program) == "in 'string', line 99, column 1"


def test_an_edit_of_an_included_file_is_seen(tmp_path: Path) -> None:
    main = write(tmp_path, main=MAIN, shapes__half="real half(real x) { return x / 2; }\n")
    before = stanadapt.Posterior(main)
    write(tmp_path, shapes__half="real half(real x) { return x / 4; }\n")
    assert gradient(main) == pytest.approx(-0.125)
    assert before.log_density_gradient([2.0])[1][0] == pytest.approx(-0.5)
    again = pickle.loads(pickle.dumps(before))
    assert again.log_density_gradient([2.0])[1][0] == pytest.approx(-0.5)


@pytest.mark.parametrize("form", ["one program", "pairs"])
def test_many_fits_of_a_program_with_includes(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = write(tmp_path / "program", main=MAIN)
    write(tmp_path / "library", shapes__half="real half(real x) { return x / 2; }\n")
    monkeypatch.chdir(tmp_path)
    run = {"method": "rwm", "chains": 1, "warmup": 5, "draws": 4, "seed": 1, "progress": False, "workers": 1}
    one, datasets = (main, [None]) if form == "one program" else (None, {0: (main, None)})
    with pytest.warns(stanadapt.StanAdaptWarning):
        (found,) = stanadapt.sample_many(one, datasets, include_paths="library", **run)
    assert found[1]["posterior"].sizes["draw"] == 4
    (tmp_path / "library" / "shapes" / "half.stan").write_text("real half(real x) { return y; }")
    if form == "one program":
        with pytest.raises(ModelError, match=r"half\.stan', line 1, column 27"):
            stanadapt.sample_many(one, datasets, include_paths="library", **run)
