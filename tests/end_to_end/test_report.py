"""Reports: what they say, that names of users stay names, their size, and the lines that they give."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

import stanadapt
from pages import EVIL, EVIL_LABELS, EVIL_NAME, Elements, evil_result, wide_result
from stanadapt import cli
from stanadapt.diagnostics import findings
from stanadapt.diagnostics.finding import Finding
from stanadapt.errors import ArgumentError, OutputError
from stanadapt.model.source import Contents, model_name
from stanadapt.reports import pictures, thinning
from stanadapt.reports.colours import turn_dark
from stanadapt.reports.figures import _alike
from stanadapt.reports.page import Column, Table, picture, render
from stanadapt.reports.reproduce import lines
from stanadapt.reports.verdict import CARE, GOOD, KINDS, SERIOUS, judge
from stanadapt.result.container import attributes, container, datasets
from stanadapt.result.files import read, write

MODELS = Path(__file__).parents[2] / "models"
MOST = 5_000_000  # bytes
PROGRAM = "data { int n; } parameters { vector[n] x; } model { x ~ normal(0, 1); }"

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def sample(**keywords: Any) -> Any:
    given = {"method": "rwm", "seed": 4, "chains": 2, "warmup": 100, "draws": 150, "progress": False}
    return stanadapt.sample(PROGRAM, {"n": 2}, **{**given, **keywords})


@pytest.fixture(scope="module")
def drawn() -> Any:
    return sample(settings={"step_rate": 0.02})


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages that are looked at for their texts and tables: pictures take nearly all of the time."""
    monkeypatch.setattr("stanadapt.reports.document.draw_pictures", lambda _: iter(()))


@pytest.fixture(scope="module")
def page(drawn: Any) -> str:
    return stanadapt.report(drawn).html


@pytest.fixture(scope="module")
def evil() -> str:
    return stanadapt.report(evil_result(), title=EVIL).html


def data_of_tables(page: str) -> dict[str, Any]:
    elements = Elements(page)
    kinds = [attrs.get("type") for tag, attrs in elements.found if tag == "script"]
    texts = [text for kind, text in zip(kinds, elements.scripts, strict=True) if kind == "application/json"]
    ids = [attrs["id"] for tag, attrs in elements.found if "table" in str(attrs.get("class")).split()]
    return {str(id): json.loads(text) for id, text in zip(ids, texts, strict=True)}


def test_names_stay_names(evil: str) -> None:
    elements = Elements(evil)
    assert evil.count(EVIL) == evil.count(EVIL_NAME) == 0
    assert not [name for _, attrs in elements.found for name in attrs if name.startswith("on")]
    assert {tag for tag, _ in elements.found} & {"img", "iframe", "object", "embed", "base", "form"} == set()
    rows = [row[0] for row in data_of_tables(evil)["summary"]["rows"]]
    assert rows == [f"{EVIL_NAME}[{label}]" for label in EVIL_LABELS] + ["plain"]
    # In the title, the heading, the pictures, the program and the list of what was run, as text.
    assert elements.text.count("alert('evil')") > 8
    assert "{{ 7 * 7 }}" in elements.text
    assert "could not be drawn" not in elements.text


def test_only_the_scripts_of_this_room_may_run(evil: str) -> None:
    elements = Elements(evil)
    policy = next(attrs["content"] for tag, attrs in elements.found if "http-equiv" in attrs)
    kinds = [attrs.get("type") for tag, attrs in elements.found if tag == "script"]
    sources = [text for kind, text in zip(kinds, elements.scripts, strict=True) if kind is None]
    hashes = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in sources]
    allowed = re.search(r"script-src ([^;]*);", str(policy))
    assert allowed is not None
    assert allowed[1].split() == [f"'sha256-{each}'" for each in hashes]
    assert "default-src 'none'" in str(policy)


def test_nothing_is_loaded_from_elsewhere(page: str, evil: str) -> None:
    for each in (page, evil):
        elements = Elements(each)
        links = elements.attributes("href") + elements.attributes("src")
        assert links
        assert all(link.startswith(("#", "data:")) for link in links)
        assert "@import" not in each
        assert not re.search(r"url\((?!#)", each)


def test_identifiers_are_unique_and_links_lead_somewhere(page: str, evil: str) -> None:
    for each in (page, evil):
        elements = Elements(each)
        ids = elements.attributes("id")
        assert len(ids) == len(set(ids))
        links = [link[1:] for link in elements.attributes("href") if link.startswith("#")]
        labels = [
            id
            for name in ("aria-labelledby", "aria-controls")
            for value in elements.attributes(name)
            for id in value.split()
        ]
        assert set(links + labels) <= set(ids)
        assert set(re.findall(r"url\(#([^)]*)\)", each)) <= set(ids)


def test_what_a_page_has(drawn: Any, page: str) -> None:
    text = Elements(page).text
    tables = data_of_tables(page)
    assert [row[0] for row in tables["summary"]["rows"]] == ["x[0]", "x[1]"]
    frame = stanadapt.summary(drawn)
    shown = np.array([[float(cell) for cell in row[1:]] for row in tables["summary"]["rows"]])
    np.testing.assert_allclose(shown[:, 0], frame["mean"], atol=2 * frame["mcse_mean"].max())
    np.testing.assert_allclose(shown[:, -1], frame["r_hat"], atol=5e-4)
    assert ["n", "given", "scalar", "int64", "2"] in tables["data"]["rows"]
    assert ["step_rate", "0.02", "0.015"] in [row[:3] for row in tables["settings"]["rows"]]
    for word in (PROGRAM, "rwm", "numpy", "seed=4", "Seed", attributes(drawn)["model_hash"]):
        assert word in text
    for each in ("chains", "ess", "adaptation"):
        assert f'id="{each}"' in page
    assert 'id="energy"' not in page  # a random walk has none


@pytest.mark.usefixtures("without_pictures")
def test_a_report_is_called_by_its_model(drawn: Any, tmp_path: Path) -> None:
    program = tmp_path / "coins.stan"
    program.write_text(PROGRAM)
    idata = stanadapt.sample(
        program, {"n": 2}, method="rwm", warmup=20, draws=20, seed=1, progress=False, store=tmp_path / "run"
    )
    for each in (idata, stanadapt.load(tmp_path / "run")):
        report = stanadapt.report(each)
        assert report.title == "coins"
        assert re.search(r"<h1[^>]*>coins</h1>\s*<p[^>]*>rwm, seed 1</p>", report.html)
    assert stanadapt.report(idata, title="mine").title == "mine"
    assert stanadapt.report(drawn).title == "rwm, seed 4"  # the program was a text


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("models/eight_schools.stan", "eight_schools"),
        (Path("lib/eight_schools_model.so"), "eight_schools"),
        (SimpleNamespace(stan_file="a/coins.stan", name="coins_1"), "coins"),
        (SimpleNamespace(name="schools"), "schools"),
        (SimpleNamespace(name=""), ""),
        (test_names_stay_names, "test_names_stay_names"),
        (lambda x: x, ""),
        (PROGRAM, ""),
        (Contents("model.stan"), ""),
    ],
)
def test_names_of_models(model: Any, name: str) -> None:
    assert model_name(model) == name


def folded_result(spread: float, shift: float = 0.0) -> Any:
    """A parameter, and two quantities that are computed from it, one of them `spread` times as wide."""
    x = np.random.default_rng(1).normal(size=(4, 500)) + shift * np.arange(4)[:, None]
    values = {"x": x, "twice": 2.0 * x, "wide": spread * x}
    posterior = xarray.Dataset({name: (("chain", "draw"), each) for name, each in values.items()})
    return container({"posterior": posterior}, {"parameters": '["x"]'})


@pytest.mark.usefixtures("without_pictures")
def test_computed_quantities_are_folded_under_the_parameters() -> None:
    page = stanadapt.report(folded_result(10.0)).html
    tables = data_of_tables(page)
    assert [row[0] for row in tables["summary"]["rows"]] == ["x"]
    assert [row[0] for row in tables["others"]["rows"]] == ["twice", "wide"]
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "from the parameters: twice, wide</summary>" in folded
    assert 'id="others"' in folded
    assert "<details open>" in stanadapt.report(folded_result(10.0, shift=3.0)).html  # cells are marked


@pytest.mark.usefixtures("without_pictures")
def test_digits_agree_within_a_column() -> None:
    def decimals(spread: float) -> list[set[int]]:
        rows = data_of_tables(stanadapt.report(folded_result(spread)).html)["others"]["rows"]
        return [
            {len(cell.partition(".")[2]) for cell in column} for column in list(zip(*rows, strict=True))[1:]
        ]

    assert all(len(found) == 1 for found in decimals(100.0))
    assert any(len(found) > 1 for found in decimals(100_000.0))  # no digits that mean nothing


def test_digits_of_chains_agree_unless_they_lie_far_apart() -> None:
    assert _alike(np.array([0.984, 1.0412, 1.5]), None) == ["0.98", "1.04", "1.50"]
    assert _alike(np.array([1.0, 0.00123, np.nan]), None) == ["1", "0.00123", "nan"]
    assert _alike(np.array([160.0, 161.0]), 0) == ["160", "161"]
    assert _alike(np.zeros(2), None) == ["0", "0"]


def test_findings_link_to_pictures() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 100)) + 5.0 * np.arange(4)[:, None]
    made = container({"posterior": xarray.Dataset({"x": (("chain", "draw"), x)})})
    report = stanadapt.report(made)
    assert report.verdict.startswith("Do not trust these draws yet: the chains do not agree yet")
    listed = re.findall(r'<li class="(\w+)">(.*?)</li>', report.html, re.S)
    assert [level for level, _ in listed] == sorted((level for level, _ in listed), reverse=True)
    assert len(listed) == len(stanadapt.diagnose(made))
    assert 'href="#chains"' in listed[0][1]
    assert 'href="#ess"' in listed[-1][1]


def test_verdicts_are_one_sentence() -> None:
    assert judge([], "all is well").sentence == "Nothing speaks against these draws: all is well."
    assert judge([], "all is well").level == GOOD
    care = judge([Finding("ess_bulk", ""), Finding("ess_tail", "")], "")
    assert care.level == CARE
    assert care.sentence == (
        "Use these draws with care: some means rest on few effective draws and some quantiles rest on few "
        "effective draws."
    )
    many = judge([Finding(kind, "") for kind in ("ess_bulk", "r_hat", "apart", "nan", "still", "r_hat")], "")
    assert many.level == SERIOUS
    assert many.sentence.endswith("some draws are NaN or infinite and there is 1 more.")
    assert "few effective" not in many.sentence
    assert judge([Finding("r_hat", "")], "", is_running=True).sentence.startswith("There are too few draws")
    assert (
        judge([Finding("r_hat", "")], "x", is_running=True).sentence == "So far the chains do not agree yet."
    )


def test_every_kind_of_findings_is_known() -> None:
    """All that the room of diagnostics makes, wherever it makes it."""
    room = Path(findings.__file__).parent
    source = "".join(path.read_text("utf-8") for path in room.rglob("*.py"))
    kinds = set(re.findall(r'Finding\(\s*"(\w+)"', source))
    assert 'f"ess_{kind}"' in source
    kinds |= {"ess_bulk", "ess_tail"}
    assert len(kinds) > 30
    assert kinds == set(KINDS)
    assert {kind.picture for kind in KINDS.values() if kind.picture} <= {plan.id for plan in pictures.PLANS}


def test_a_finding_of_an_unknown_kind_stops_no_report() -> None:
    verdict = judge([Finding("of_tomorrow", "Something."), Finding("ess_bulk", "")], "all is well")
    assert verdict.level == CARE
    assert verdict.sentence.startswith(
        "Use these draws with care: there is a finding of the kind of_tomorrow and"
    )


def test_ten_thousand_parameters_fit() -> None:
    page = stanadapt.report(wide_result(10_000, 50)).html
    assert len(page.encode()) < MOST
    assert len(data_of_tables(page)["summary"]["rows"]) == 10_000


@pytest.mark.usefixtures("without_pictures")
def test_rows_with_long_names_are_left_out_in_words() -> None:
    page = stanadapt.report(wide_result(20_000, 8, "<&>" * 50)).html
    assert len(page.encode()) < MOST
    rows = data_of_tables(page)["summary"]["rows"]
    assert 1_000 < len(rows) < 20_000
    assert f"{20_000 - len(rows)} of 20000 rows did not fit in the page" in Elements(page).text
    shown = [float(row[-1]) for row in rows]
    assert shown == sorted(shown, reverse=True)  # the worst are there


# `make test` has ten thousand parameters above, and pictures of too many points below.
@pytest.mark.thorough
def test_a_hundred_thousand_draws_fit() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, 100_000))
    groups = {
        "posterior": xarray.Dataset({"x": (("chain", "draw"), x), "y": (("chain", "draw"), x**2)}),
        "sample_stats": xarray.Dataset({"energy": (("chain", "draw"), x**2)}),
    }
    page = stanadapt.report(container(groups)).html
    assert len(page.encode()) < MOST
    assert "could not be drawn" not in page
    assert "<img" not in page


@pytest.mark.usefixtures("without_pictures")
def test_what_is_larger_than_memory_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "MOST_NUMBERS", 4 * 60)
    report = stanadapt.report(evil_result())
    text = Elements(report.html).text
    assert "one draw in 4" in text
    assert "4 chains of 15" in text


@pytest.mark.usefixtures("without_pictures")
def test_draws_on_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("stanadapt.run.preparation.memory.MEMORY_BYTES", 1)
    idata = sample(store=tmp_path / "run")
    monkeypatch.setattr(thinning, "MOST_NUMBERS", 150)
    thinned = thinning.thin(idata)
    assert thinned.step == 4
    every = datasets(stanadapt.load(tmp_path / "run"))["posterior"]["x"].values[:, ::4]
    np.testing.assert_array_equal(datasets(thinned.idata)["posterior"]["x"].values, every)
    assert "one draw in 4" in stanadapt.report(idata).html


@pytest.mark.parametrize("chains", [1, 4])
def test_a_posterior_from_elsewhere(chains: int) -> None:
    rng = np.random.default_rng(1)
    made = container(
        {"posterior": xarray.Dataset({"x": (("chain", "draw"), rng.normal(size=(chains, 500)))})}
    )
    report = stanadapt.report(made)
    assert report.verdict.startswith("Nothing speaks against")
    assert "halves of the chain agree" in report.verdict or chains > 1
    assert "Draw it again" not in report.html
    assert "does not hold the model" in report.html


def test_attributes_from_elsewhere_are_none_of_ours() -> None:
    x = np.random.default_rng(1).normal(size=(4, 100))
    attrs = {
        "sampling_time": "long",
        "thin": "x",
        "tuning_steps": [1],
        "settings": "{",
        "versions": "3",
        "method": 7,
    }
    made = container({"posterior": xarray.Dataset({"x": (("chain", "draw"), x)}, attrs=attrs)}, attrs)
    text = Elements(stanadapt.report(made).html).text
    assert "4 chains of 100" in text
    assert "could not be drawn" not in text


def test_results_without_numbers() -> None:
    nothing = container({"posterior": xarray.Dataset({"x": (("chain", "draw"), np.empty((2, 0)))})})
    assert stanadapt.report(nothing).verdict == (
        "Do not trust these draws yet: there are too few draws to judge."
    )
    x = np.full((2, 50), np.nan)
    report = stanadapt.report(container({"posterior": xarray.Dataset({"x": (("chain", "draw"), x)})}))
    assert "NaN" in report.verdict
    with pytest.raises(ArgumentError, match="idata"):
        stanadapt.report("fit.nc")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="title=3 is not allowed"):
        stanadapt.report(nothing, title=3)  # type: ignore[arg-type]


def test_a_picture_that_fails_is_named(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no <ink>")

    plans = (pictures.PLANS[0]._replace(draw=fail), *pictures.PLANS[1:])
    monkeypatch.setattr(pictures, "PLANS", plans)
    report = stanadapt.report(drawn)
    assert "could not be drawn: ValueError: no &lt;ink&gt;" in report.html
    assert "<svg" in report.html


@pytest.mark.usefixtures("without_pictures")
def test_save_and_notebooks(drawn: Any, tmp_path: Path) -> None:
    out = tmp_path / "fit.html"
    out.write_text("old")
    report = stanadapt.report(drawn, out)
    assert out.read_text("utf-8") == report.html
    assert report.save(out) == out.resolve()
    assert [path.name for path in tmp_path.iterdir()] == ["fit.html"]
    with pytest.raises(OutputError, match="is a directory"):
        stanadapt.report(drawn, tmp_path)
    frame = report._repr_html_()
    ((tag, attrs),) = Elements(frame).found
    assert tag == "iframe"
    assert attrs["srcdoc"] == report.html
    assert "allow-same-origin" not in str(attrs["sandbox"])
    assert report.verdict in repr(report)
    assert html.escape(EVIL) in stanadapt.report(drawn, title=EVIL)._repr_html_()


@pytest.mark.parametrize(
    "run",
    [
        {"settings": {"step_rate": 0.02, "target_accept": 0.3}, "thin": 3, "init_radius": 0.5},
        {"method": "fisher_hmc", "chains": 3, "save_warmup": True, "keep_unconstrained": True},
        {"until": "ess 50", "draws": 900},
        {"inits": 0.25},
    ],
    ids=lambda run: " ".join(run),
)
def test_the_lines_draw_the_same_again(
    run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idata = sample(**run)
    found = lines(datasets(idata), attributes(idata))
    assert found is not None
    assert len(found.python.splitlines()) == len(found.shell.splitlines()) == 2
    monkeypatch.chdir(tmp_path)
    Path("model.stan").write_text(attributes(idata)["model_code"])
    Path("data.json").write_text('{"n": 2}')
    known: dict[str, Any] = {}
    exec(found.python, known)
    done = CliRunner().invoke(cli.main, words_of(found.shell.splitlines()[0]))
    assert done.exit_code == 0, done.output
    for again in (known["idata"], read("fit.nc")):
        assert list(datasets(again)) == list(datasets(idata))
        np.testing.assert_array_equal(
            datasets(again)["posterior"]["x"].values, datasets(idata)["posterior"]["x"].values
        )


def words_of(line: str) -> list[str]:
    command, *words = shlex.split(line)
    assert command == "stanadapt"
    return words


@pytest.mark.usefixtures("without_pictures")
def test_what_the_lines_lack_is_said() -> None:
    given = sample(inits=np.zeros((2, 2)))
    found = lines(datasets(given), attributes(given))
    assert found is not None
    assert any("starting points (inits), which the result does not hold" in text for text in found.lacking)
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2)
    drawn = stanadapt.sample(target, method="rwm", warmup=50, draws=50, seed=1, progress=False)
    page = stanadapt.report(drawn).html
    assert "model is the program or the target of the run" in page
    assert 'class="shell"' not in page


@pytest.mark.usefixtures("without_pictures")
def test_a_result_holds_its_program(tmp_path: Path) -> None:
    program = PROGRAM + "\n// " + "é" * 200_000
    idata = stanadapt.sample(
        program, {"n": 1}, method="rwm", warmup=10, draws=10, seed=1, progress=False, store=tmp_path / "run"
    )
    write(idata, tmp_path / "fit.nc")
    for each in (idata, read(tmp_path / "fit.nc"), stanadapt.load(tmp_path / "run")):
        assert attributes(each)["model_code"] == program
        assert all("model_code" not in group.attrs for group in datasets(each).values())
        assert {"numpy", "python", "arviz"} <= set(json.loads(attributes(each)["versions"]))
    page = stanadapt.report(idata).html
    assert f"The last {len(program) - 150_000} characters are left out." in page


@pytest.mark.usefixtures("without_pictures")
def test_the_command(tmp_path: Path, drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(drawn, "my fit.nc")
    runner = CliRunner()
    done = runner.invoke(cli.main, ["report", "my fit.nc"])
    assert done.exit_code == 0, done.output
    assert "Written to my fit.html" in done.output
    assert '<h1 id="heading">my fit.nc</h1>' in Path("my fit.html").read_text("utf-8")
    refused = runner.invoke(cli.main, ["report", "my fit.nc"])
    assert refused.exit_code == 2
    assert "use --force to replace it" in refused.output
    assert runner.invoke(cli.main, ["report", "my fit.nc", "--force", "--title", EVIL]).exit_code == 0
    sample(store="run")
    assert runner.invoke(cli.main, ["report", "run"]).exit_code == 0
    assert '<h1 id="heading">run</h1>' in Path("run.html").read_text("utf-8")


def test_nothing_heavy_is_imported_before_a_report() -> None:
    code = (
        "import sys, stanadapt, stanadapt.cli\n"
        "assert callable(stanadapt.report)\n"
        "from stanadapt.reports import page, document\n"
        "assert callable(stanadapt.report)\n"
        "heavy = {'jinja2', 'matplotlib', 'arviz'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tables_say_what_their_cells_mean() -> None:
    columns = [Column("name", number=False), Column("ess", below=100.0), Column("r", above=1.01)]
    made = Table("t", "rows", columns, [["a", "99", "1.01"], ["b\x1b", "100", "1.011"], ["c", "", "nan"]])
    marked = [[columns[i].is_marked(cell) for i, cell in enumerate(row)] for row in made.rows]
    assert marked == [[False, True, False], [False, False, True], [False, False, False]]
    assert json.loads(made.data)["rows"][1][0] == "b\\x1b"
    assert made.n_left_out == 0
    few = Table("t", "rows", columns[:1], [["x" * 90]] * 50, most_bytes=1_000)
    assert 0 < len(few.rows) < 12
    assert few.n_left_out == 50 - len(few.rows)


def make_figure(points: int = 100) -> Any:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot()
    values = np.random.default_rng(1).normal(size=points)
    axes.plot(values, color="#0072b2", label=EVIL)
    axes.set_title(EVIL)
    axes.legend()
    return figure


def test_pictures_have_words_and_the_colours_of_the_page() -> None:
    made = picture(make_figure(), "first", "A <title>", "What & how")
    elements = Elements(str(made.markup))
    assert elements.found[0][1]["role"] == "img"
    assert elements.found[0][1]["aria-labelledby"] == "first-title first-desc"
    assert made.markup.index("A &lt;title&gt;</title>") < made.markup.index("What &amp; how</desc>")
    assert all(id.startswith("first-") for id in elements.attributes("id"))
    assert "style" not in {tag for tag, _ in elements.found}
    assert "var(--x0072b2,#0072b2)" in made.markup
    assert EVIL in elements.text
    assert EVIL not in made.markup
    rules = render("watch.html", title="t", pictures=[made], look=None, heading="", version=0, over=False)
    assert f"--x0072b2:{turn_dark('0072b2')};" in rules


def test_lines_of_many_points_look_the_same() -> None:
    from stanadapt.reports.vector import _thin

    figure = make_figure(100_000)
    line = figure.axes[0].lines[0]
    x, y = line.get_data()
    _thin(line)
    thin_x, thin_y = line.get_data()
    assert len(thin_x) < 1_500
    assert np.isin(thin_x, x).all()
    np.testing.assert_array_equal(thin_y, y[thin_x.astype(int)])
    for part in np.arange(99_900).reshape(300, 333):
        inside = thin_y[(thin_x >= part[0]) & (thin_x <= part[-1])]
        assert inside.max() == y[part].max()
        assert inside.min() == y[part].min()


def test_paths_are_shorter_and_the_same() -> None:
    from stanadapt.reports.vector import _shorten

    rng = np.random.default_rng(1)
    points = np.cumsum(rng.normal(size=(500, 2)), axis=0)
    text = "M " + " L ".join(f"{x:.6f} {y:.6f}" for x, y in points)
    short = _shorten(text)
    assert len(short) < 0.5 * len(text)
    steps = np.array(
        [
            [float(a), float(b)]
            for a, b in re.findall(r"(-?\d*\.?\d+) ?(-?\d*\.?\d+)", short.replace("l", " l "))
        ]
    )
    path = np.cumsum(steps, axis=0)
    distance = np.abs(points[:, None] - path).max(axis=2).min(axis=1)
    assert distance.max() < 0.5  # points of a page, of which an inch has 72
    np.testing.assert_allclose(path[-1], points[-1], atol=0.01)
    assert _shorten("M 0 0 Q 1 1 2 2") == "M 0 0 Q 1 1 2 2"


def test_pictures_of_too_many_points_are_images() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3))
    values = np.random.default_rng(1).normal(size=(2, 20_000))
    figure.add_subplot().scatter(*values, s=1)
    made = picture(figure, "p", "t", "d")
    assert made.markup.startswith("<svg")
    assert "<image" in made.markup
    assert len(made.markup) < 650_000


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2.2, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour.lstrip("#")[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_dark_colours_can_be_seen() -> None:
    from stanadapt.plots.canvas import COLOURS

    paper = "#15181c"
    for colour in (*COLOURS, "#1f77b4", "#d62728", "#7f7f7f", "#ff0000", "#0000ff"):
        assert contrast(turn_dark(colour.lstrip("#").lower()), paper) > 3.0, colour
    assert contrast(turn_dark("000000"), paper) > 12.0
    assert contrast(turn_dark("ffffff"), paper) < 1.4


def test_templates_are_in_the_wheel(tmp_path: Path) -> None:
    hatchling = pytest.importorskip(
        "hatchling.builders.wheel", reason="hatchling, which builds wheels, is not here"
    )
    root = Path(__file__).parents[2]
    built = next(hatchling.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"]))
    names = {Path(name).name for name in zipfile.ZipFile(built).namelist()}
    folder = root / "stanadapt" / "reports" / "templates"
    assert {path.name for path in folder.iterdir()} <= names
