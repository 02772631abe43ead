"""Comparisons: budgets, methods, references, who is named, and what is shown."""

from __future__ import annotations

import importlib
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stanadapt
from compared import PROGRAM, as_result, attempt, evil_comparison, plan_for
from pages import EVIL, Elements
from stanadapt.comparisons.budget import Budget
from stanadapt.comparisons.conclusion import conclude
from stanadapt.comparisons.entrants import Entrant, read_methods
from stanadapt.comparisons.measures import in_words
from stanadapt.comparisons.plan import ComparisonPlan
from stanadapt.comparisons.quantities import Quantities
from stanadapt.comparisons.reference_draws import read_reference
from stanadapt.comparisons.running import FAILED, INTERRUPTED, NOT_RUN, OK, Attempt, run_all
from stanadapt.comparisons.whole import seconds_of_chains
from stanadapt.diagnostics.estimates import STATISTICS
from stanadapt.errors import ArgumentError, OutputError
from stanadapt.plots.canvas import COLOURS
from stanadapt.result.container import datasets
from stanadapt.result.files import write


@pytest.fixture(scope="module")
def posterior() -> stanadapt.Posterior:
    return stanadapt.Posterior(PROGRAM)


# --- What is asked


@pytest.mark.parametrize(
    ("given", "seconds", "gradients", "draws"),
    [
        ("10 s", 10.0, None, None),
        ("10s", 10.0, None, None),
        (" 2  min ", 120.0, None, None),
        ("0.5 h", 1800.0, None, None),
        ("200000 gradients", None, 200_000, None),
        ("2e5 gradients", None, 200_000, None),
        (5000, None, None, 5000),
        ("5000", None, None, 5000),
        ("5000 draws", None, None, 5000),
        (np.int64(7), None, None, 7),
    ],
)
def test_budgets(given: Any, seconds: Any, gradients: Any, draws: Any) -> None:
    budget = Budget.parse(given)
    assert (budget.seconds, budget.gradients, budget.draws) == (seconds, gradients, draws)
    assert Budget.parse(budget) is budget
    assert (budget.until is None) == (draws is not None)


@pytest.mark.parametrize(
    "given",
    [
        *("", "-3 s", "0 s", "soon", "10 s, 200 gradients", "ess 400", "10 parsecs", "nan s", "3 draws", "1"),
        *(0, 3, -1, 2.5, True, None, float("nan"), [10], "1.5 gradients", "10 s 20 s", 10**12),
    ],
)
def test_budgets_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match="budget="):
        Budget.parse(given)


def test_methods() -> None:
    assert read_methods(["rwm", "nuts"]) == [Entrant("rwm", "rwm"), Entrant("nuts", "nuts")]
    assert read_methods("rwm") == [Entrant("rwm", "rwm")]
    given = {"rwm": None, "dense": {"method": "nuts", "settings": {"metric": "dense"}, "warmup": 300}}
    assert read_methods(given) == [
        Entrant("rwm", "rwm"),
        Entrant("dense", "nuts", {"metric": "dense"}, 300),
    ]
    assert read_methods(["auto"])[0].method == "auto"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "at least one"),
        (["rwn"], "nearest: rwm"),
        (["rwm", "rwm"], "rwm twice"),
        (7, "a list of methods"),
        ([7], "a list of methods"),
        ({"rwm": {"setings": {}}}, "nearest: settings"),
        ({"rwm": {"settings": {"no such": 1}}}, "no such"),
        ({"rwm": 7}, "a dict with some of"),
        ({"rwm": {"warmup": -1}}, "warmup"),
        ({"": {"method": "rwm"}}, "label"),
        ({"mine": {}}, "method='mine'"),
    ],
)
def test_methods_that_are_none_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_methods(given)


def test_seeds_depend_on_the_label_and_the_repeat_alone() -> None:
    alone, among = read_methods(["nuts"])[0], read_methods(["rwm", "nuts"])[1]
    assert alone.seed(1, 0) == among.seed(1, 0)
    entrants = read_methods(["rwm", "am"])
    seeds = {each.seed(seed, repeat) for each in entrants for seed in (1, 2) for repeat in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.usefixtures("never_runs")
@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"chains": 0}, "chains=0"),
        ({"repeats": 0}, "repeats=0"),
        ({"seed": -1}, "seed=-1"),
        ({"workers": 0}, "workers=0"),
        ({"thin": 0}, "thin=0"),
        ({"budget": 5, "thin": 6}, "thin=6"),
        ({"mmd": "yes"}, "mmd='yes'"),
        ({"progress": 1}, "progress=1"),
        ({"error_rate": 0.0}, "error_rate=0.0"),
        ({"var_names": ["nu"]}, "var_names='nu'"),
        ({"var_names": 3}, "var_names=3"),
        ({"inits": [1.0]}, "inits"),
        ({"coords": {"which": [1, 2, 3]}}, "coords"),
        ({"data": {"y": 1}}, "data are not allowed"),
        ({"reference": 3}, "reference=3"),
        ({"budget": "a while"}, "budget='a while'"),
        ({"methods": ["nut"]}, "method='nut'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    posterior: stanadapt.Posterior, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        stanadapt.compare(posterior, **keywords)


def test_a_model_without_parameters_has_nothing_to_compare() -> None:
    with pytest.raises(ArgumentError, match="no parameters"):
        stanadapt.compare("generated quantities { real x = std_normal_rng(); }", budget=10)


def test_chains_take_turns_on_workers() -> None:
    assert seconds_of_chains([1.0, 2.0, 3.0], 1) == 6.0
    assert seconds_of_chains([1.0, 2.0, 3.0, 4.0], 2) == 6.0  # 1 and 3, 2 and 4
    assert seconds_of_chains([1.0, 2.0], 8) == 2.0


# --- Quantities and references


def test_quantities_are_those_that_move(posterior: stanadapt.Posterior) -> None:
    quantities = Quantities(posterior, None)
    assert quantities.names == ["mu", "theta", "R"]
    assert quantities.kept.tolist() == [True, True, True, False, False, True, False]
    assert len(quantities) == 4
    assert (
        quantities.place("R[2,1]")
        == quantities.place("R.2.1")
        == quantities.place("R[2, 1]")
        == ("R", (1, 0))
    )
    assert quantities.place("R[0,1]") is None
    assert len(Quantities(posterior, ["twice"])) == 1


def known_draws(n: int = 400, seed: int = 1) -> dict[str, np.ndarray]:
    """Draws (2, n, *shape) by variable."""
    rng = np.random.default_rng(seed)
    correlation = np.tanh(rng.normal(size=(2, n)))
    matrix = np.ones((2, n, 2, 2))
    matrix[..., 0, 1] = matrix[..., 1, 0] = correlation
    return {"mu": rng.normal(size=(2, n)), "theta": rng.normal(0, 3, (2, n, 2)), "R": matrix}


def flat_names(draws: dict[str, np.ndarray], style: str) -> dict[str, np.ndarray]:
    """Columns (2, n) by the names that Stan gives to scalars."""
    found = {}
    for name, values in draws.items():
        for index in np.ndindex(*values.shape[2:]):
            places = [str(i + 1) for i in index]
            suffix = (
                (f"[{','.join(places)}]" if places else "")
                if style == "["
                else "".join(f".{i}" for i in places)
            )
            found[name + suffix] = values[(slice(None), slice(None), *index)]
    return found


def forms(folder: Path) -> dict[str, Any]:
    draws = known_draws()
    brackets = flat_names(draws, "[")
    chains = [{name: values[i].tolist() for name, values in brackets.items()} for i in range(2)]
    dots = flat_names(draws, ".")
    frame = pd.DataFrame({name: values.ravel() for name, values in dots.items()})
    frame["chain"] = np.repeat([1, 2], len(frame) // 2)
    frame["lp__"] = 0.0
    write(as_result(draws), folder / "known.nc")
    (folder / "known.json").write_text(json.dumps(chains))
    with zipfile.ZipFile(folder / "known.json.zip", "w") as archive:
        archive.writestr("known.json", json.dumps(chains))
    frame.to_csv(folder / "known.csv", index=False)
    files = {name: folder / name for name in ("known.nc", "known.json", "known.json.zip", "known.csv")}
    return {"result": as_result(draws), "chains": chains, "frame": frame} | files


def test_a_reference_says_the_same_in_every_form(posterior: stanadapt.Posterior, tmp_path: Path) -> None:
    quantities, given = Quantities(posterior, None), forms(tmp_path)
    first = read_reference(given["result"], quantities)
    assert first.estimates.value.shape == (4, len(STATISTICS))
    assert np.isfinite(first.estimates.error).all()
    for name, each in given.items():
        found = read_reference(each, quantities)
        for one, other in zip(found.estimates, first.estimates, strict=True):
            np.testing.assert_allclose(one, other, err_msg=name, rtol=1e-9)
        assert found.sample is not None
    text = str(tmp_path / "known.csv")
    np.testing.assert_allclose(read_reference(text, quantities).estimates.value, first.estimates.value)


def test_moments_are_exact_unless_they_say_by_how_much_not(posterior: stanadapt.Posterior) -> None:
    quantities = Quantities(posterior, None)
    given = {
        "mu": {"mean": 0.5, "sd": 1.0, "mcse_mean": 0.1},
        "theta": {"mean": [1.0, 2.0]},
        "R[1,2]": {"q95": 0.9},  # a copy of R[2,1], and so not compared
        "R.2.1": {"q5": -0.9},
        "elsewhere": {"mean": 3.0},
    }
    for form in (given, {"source": "somewhere", "moments": given}):
        found = read_reference(form, quantities)
        place = {name: i for i, name in enumerate(STATISTICS)}
        assert found.estimates.value[:3, place["mean"]].tolist() == [0.5, 1.0, 2.0]
        assert found.estimates.error[:3, place["mean"]].tolist() == [0.1, 0.0, 0.0]
        assert found.estimates.value[3, place["q5"]] == -0.9
        assert np.isnan(found.estimates.value[3, place["mean"]])
        assert np.isnan(found.estimates.value[:, place["q95"]]).all()
        assert found.sample is None


def test_a_reference_may_lack_a_part(posterior: stanadapt.Posterior) -> None:
    draws = known_draws()
    found = read_reference([{"theta[2]": draws["theta"][0, :, 1].tolist()}], Quantities(posterior, None))
    assert np.isfinite(found.estimates.value).all(axis=1).tolist() == [False, False, True, False]
    assert found.sample is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "an InferenceData"),
        ([], "an InferenceData"),
        ({}, "an InferenceData"),
        ("nowhere.nc", "no such file"),
        ({"nu": {"mean": 1.0}}, "nothing of mu"),
        ({"mu": {"mean": 1.0, "median": 1.0}}, "a moment of"),
        ({"theta": {"mean": [1.0, 2.0, 3.0]}}, r"\(3,\)"),
        ({"theta[1]": {"mean": [1.0, 2.0]}}, "is one scalar"),
        ({"mu": {"mean": "high"}}, "must be numbers"),
        ([{"mu": [1.0, 2.0]}], "2 draws"),
        ([{"mu": [1.0] * 9}, {"mu": [1.0] * 8}], "different lengths"),
        ([{"nu": [1.0] * 9}], "nothing of mu"),
        (pd.DataFrame({"nu": [1.0] * 9}), "nothing of mu"),
    ],
)
def test_bad_references_are_refused(posterior: stanadapt.Posterior, given: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_reference(given, Quantities(posterior, None))


def test_a_result_of_another_shape_or_a_file_of_nonsense(
    posterior: stanadapt.Posterior, tmp_path: Path
) -> None:
    quantities = Quantities(posterior, None)
    with pytest.raises(ArgumentError, match="theta has the shape"):
        read_reference(as_result({"theta": np.zeros((2, 50, 3))}), quantities)
    for name in ("bad.json", "bad.zip", "bad.csv"):
        (tmp_path / name).write_bytes(b"\xff{")
        with pytest.raises(ArgumentError, match="cannot be read"):
            read_reference(tmp_path / name, quantities)
    (tmp_path / "bad.nc").write_bytes(b"no")
    with pytest.raises(OutputError, match="cannot be read"):
        read_reference(tmp_path / "bad.nc", quantities)


# --- What comes of runs


def test_a_wrong_method_is_named_and_the_others_are_not(posterior: stanadapt.Posterior) -> None:
    attempts = [attempt("a", 1), attempt("b", 2), attempt("wrong", 3, shift=0.4, n=5_000)]
    found = conclude(plan_for(posterior, ["a", "b", "wrong"]), attempts, 0)
    assert {each.method for each in found.disagreements} == {"wrong"}
    worst = found.disagreements[0]
    assert worst.against == ("a", "b")
    assert worst.quantity in ("mu", "theta[0]", "theta[1]")
    assert worst.z > 5.0
    assert f"{worst.z:.1f} standard errors" in str(worst)
    assert found.words[0].startswith("wrong disagrees with a and b in ")
    assert str(worst) in found.words[0]
    assert found.facts["agree"] == ["a", "b"]
    table = found.table
    assert table.loc["wrong", "z"] == pytest.approx(max(abs(each.z) for each in found.disagreements))
    assert (table.loc[["a", "b"], "z"] < found.limit).all()


def test_one_that_has_not_converged_poisons_nothing(posterior: stanadapt.Posterior) -> None:
    attempts = [attempt("a", 1), attempt("b", 2), attempt("stuck", 3, shift=3.0, kinds=("r_hat", "energy"))]
    found = conclude(plan_for(posterior, ["a", "b", "stuck"]), attempts, 0)
    assert found.disagreements == []
    assert found.table["converged"].to_dict() == {"a": True, "b": True, "stuck": False}
    assert found.words[0].startswith("a and b agree with each other")
    assert "stuck (R-hat) has not converged" in found.words[1]
    assert found.table.loc["stuck", "z"] > 20.0  # it is told all the same
    assert (found.table.loc[["a", "b"], "z"] < 5.0).all()


def test_divergences_do_not_keep_a_method_from_being_compared(posterior: stanadapt.Posterior) -> None:
    attempts = [attempt("a", 1, kinds=("divergences",)), attempt("b", 2)]
    assert conclude(plan_for(posterior, ["a", "b"]), attempts, 0).table["converged"].all()


def test_two_that_differ_are_both_doubtful(posterior: stanadapt.Posterior) -> None:
    found = conclude(plan_for(posterior, ["a", "b"]), [attempt("a", 1), attempt("b", 2, shift=0.5)], 0)
    assert found.words[0].startswith("b disagrees with a in ")
    assert "do not tell which one is right" in found.words[1]


def test_repeats_that_differ_are_no_convergence(posterior: stanadapt.Posterior) -> None:
    attempts = [
        attempt("a", 1),
        attempt("b", 2),
        attempt("a", 1, repeat=1),
        attempt("b", 2, repeat=1, shift=2.0),
    ]
    found = conclude(plan_for(posterior, ["a", "b"], repeats=2), attempts, 0)
    assert found.table["converged"].to_dict() == {"a": True, "b": False}
    assert any("b (its repeats differ from each other) has not converged" in text for text in found.words)
    assert found.disagreements == []


def test_against_a_reference(posterior: stanadapt.Posterior) -> None:
    truth = {"mu": {"mean": 0.0, "sd": 1.0}, "theta": {"mean": [0.0, 0.0]}}
    plan = plan_for(posterior, ["a", "b"], reference=truth)
    found = conclude(plan, [attempt("a", 1), attempt("b", 2, shift=0.3)], 0)
    assert found.words[0].startswith("b disagrees with the reference in ")
    assert {each.against for each in found.disagreements} == {()}
    assert (
        found.table.loc["a", "z_quantile"] != found.table.loc["a", "z_quantile"]
    )  # nothing is known of them
    good = conclude(plan, [attempt("a", 1), attempt("b", 2)], 0)
    assert good.words[0].startswith("a and b agree with the reference")
    alone = conclude(plan, [attempt("a", 1)], 0)
    assert alone.words[0].startswith("a agrees with the reference")
    all_wrong = conclude(plan, [attempt("a", 1, shift=1.0), attempt("b", 2, shift=1.0)], 0)
    assert "check that it belongs to this model" in all_wrong.words[-1]


def test_nobody_to_compare_with(posterior: stanadapt.Posterior) -> None:
    plan = plan_for(posterior, ["a", "b"])
    one = conclude(plan, [attempt("a", 1), Attempt("b", 0, "rwm", FAILED, "it broke")], 0)
    assert one.words == ["Only one method has converged, and there is no reference to compare it with."]
    none = conclude(plan, [attempt("a", 1, kinds=("ess_bulk",)), attempt("b", 2, kinds=("nan",))], 0)
    assert none.words[0].startswith("No method has converged")
    nothing = conclude(plan, [Attempt("a", 0, "rwm", FAILED, "x"), Attempt("b", 0, "rwm", FAILED, "y")], 0)
    assert nothing.words[0].startswith("No method has converged")
    assert nothing.results == {}
    assert "x" in str(nothing)
    assert nothing.estimates.empty
    assert len(nothing.plot()) == 3


def test_figures_of_repeats_together(posterior: stanadapt.Posterior) -> None:
    one, two = attempt("a", 1, n=500), attempt("a", 1, repeat=1, n=1500)
    assert one.figures is not None
    assert two.figures is not None
    two.figures = two.figures._replace(seconds=8.0, evaluations=30_000, acceptance=0.5)
    lost = Attempt("a", 2, "rwm", FAILED, "it broke")
    found = conclude(plan_for(posterior, ["a"], repeats=3), [one, two, lost], 0)
    row = found.table.loc["a"]
    sizes = [each.figures.sizes.bulk.min() for each in (one, two)]
    assert row["ess_bulk_min"] == pytest.approx(np.mean(sizes))
    assert row["ess_bulk_min_per_second"] == pytest.approx(sum(sizes) / 10.0)
    assert row["ess_bulk_min_per_1000"] == pytest.approx(sum(sizes) / 40.0)
    assert row["r_hat"] == max(each.figures.sizes.r_hat.max() for each in (one, two))
    assert (row["repeats"], row["status"], row["reason"]) == (2, FAILED, "it broke")
    assert row["acceptance"] == pytest.approx(0.4)
    assert found.runs.loc[("a", 1), "ess_tail_median_per_second"] == pytest.approx(
        np.median(two.figures.sizes.tail) / 8.0
    )
    assert "a, repeat 2 failed: it broke" in found.notes


def test_mmd_tells_the_wrong_one(posterior: stanadapt.Posterior) -> None:
    attempts = [attempt("a", 1), attempt("b", 2), attempt("wrong", 3, shift=1.0)]
    found = conclude(plan_for(posterior, ["a", "b", "wrong"], mmd=True), attempts, 0)
    assert found.table.loc["wrong", "mmd2"] > 0.05
    assert (found.table.loc[["a", "b"], "mmd2"].abs() < 0.005).all()
    known = as_result({name: values for name, values in known_draws(2_000).items() if name != "R"})
    with_known = conclude(plan_for(posterior, ["a"], mmd=True, reference=known), attempts[:1], 0)
    assert abs(with_known.table.loc["a", "mmd2"]) < 0.005
    assert "mmd2" not in conclude(plan_for(posterior, ["a"]), attempts[:1], 0).table


# --- What is shown


def test_the_text_has_a_row_for_each_method(posterior: stanadapt.Posterior) -> None:
    found = evil_comparison(posterior)
    lines = str(found).splitlines()
    assert lines[0] == (
        "3 quantities of a posterior in 4 dimensions; budget 10 s, warm-up included; 4 chains, 2 at a time; "
        "seed 1"
    )
    header = lines[2].split("  ")
    assert header[0] == "method"
    assert [line.split(" ")[0] for line in lines[3:8]] == ["a", "b", EVIL.split(" ")[0], "broken", "late"]
    assert next(each.split()[0] for each in header[1:] if each) == "status"
    assert [row[1] for row in found.cells()[1]] == ["ok", "ok", "ok", "failed", "not run"]
    assert any(line.startswith(f"- {EVIL} disagrees with a and b in") for line in lines)
    assert f"- broken $x_1$ failed: it says {EVIL}" in lines
    assert "- late: the comparison was interrupted" in lines
    assert found.interrupted
    assert lines[-1].startswith("Interrupted")
    assert repr(found).startswith("Comparison of a, b, ")
    assert set(found.meanings) <= set(found.table)
    assert found.failures.keys() == {("broken $x_1$", 0)}


def test_every_column_of_the_table_is_explained(posterior: stanadapt.Posterior) -> None:
    found = evil_comparison(posterior)
    rates = {name for name in found.table if name.endswith(("_per_second", "_per_1000"))}
    assert len(rates) == 8
    assert set(found.table) - rates <= set(found.meanings)


def test_pages_hold_names_as_names(posterior: stanadapt.Posterior, tmp_path: Path) -> None:
    found = evil_comparison(posterior)
    found.write(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    elements = Elements(page)
    assert EVIL in elements.text
    assert not any("alert(" in script and "evil" in script for script in elements.scripts if "<" in script)
    assert "alert('evil')</script>" not in page.replace("&lt;/script&gt;", "")
    assert not any(value.startswith(("http:", "https:", "//")) for value in elements.attributes("src"))
    view = Elements(found._repr_html_())
    assert EVIL in view.text
    assert not view.scripts
    assert sum(tag == "tr" for tag, _ in view.found) == 6


def test_json_and_csv_hold_what_the_tables_do(posterior: stanadapt.Posterior, tmp_path: Path) -> None:
    found = evil_comparison(posterior)
    found.write(tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text("utf-8")
    read = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    assert [row["method"] for row in read["table"]] == list(found.table.index)
    assert read["table"][0]["ess_bulk_min"] == found.table.loc["a", "ess_bulk_min"]
    assert read["table"][3]["ess_bulk_min"] is None
    assert read["disagreements"][0]["method"] == EVIL
    assert len(read["estimates"]) == 3 * 3 * len(STATISTICS)
    assert read["interrupted"] is True
    found.write(tmp_path / "table.csv")
    frame = pd.read_csv(tmp_path / "table.csv", index_col="method")
    np.testing.assert_allclose(frame["esjd"], found.table["esjd"])
    assert not list(tmp_path.glob("*.part"))


def test_files_that_cannot_be_written(posterior: stanadapt.Posterior, tmp_path: Path) -> None:
    found = evil_comparison(posterior)
    for path in ("table.txt", "table", 7):
        with pytest.raises(ArgumentError, match="path="):
            found.write(path)  # type: ignore[arg-type]
    with pytest.raises(OutputError, match="no folder"):
        found.write(tmp_path / "nowhere" / "table.csv")


def test_the_picture(posterior: stanadapt.Posterior) -> None:
    import matplotlib.pyplot as plt

    found = evil_comparison(posterior)
    axes = found.plot()
    try:
        assert len(axes) == 3
        labels = [text.get_text() for text in axes[0].get_yticklabels()]
        assert labels == ["a", "b", EVIL, r"broken \$x_1\$", "late"]
        rates = [line.get_xdata()[0] for line in axes[0].lines if line.get_marker() == "o"]
        assert rates == found.table["ess_bulk_min_per_second"].dropna().tolist()
        assert axes[0].get_xscale() == "log"
        dots = sum(len(line.get_xdata()) for line in axes[2].lines if line.get_marker() == "o")
        assert dots == found.estimates["z"].notna().sum()
        inks = {line.get_markeredgecolor() for line in axes[2].lines if line.get_marker() == "o"}
        assert inks == set(COLOURS[:2])  # of chance, and of what is no chance
        edges = sorted(line.get_xdata()[0] for line in axes[2].lines if line.get_linestyle() == "--")
        assert edges == [-found.limit, found.limit]
    finally:
        plt.close(axes[0].figure)
    figure, given = plt.subplots(1, 3)
    try:
        assert found.plot(axes=given)[0] is given[0]
    finally:
        plt.close(figure)
    with pytest.raises(ArgumentError, match="this picture needs 3"):
        found.plot(axes=given[:2])


def test_reasons_name_the_type_of_errors_that_are_not_ours() -> None:
    assert in_words(ValueError("no\n such  thing")) == "ValueError: no such thing"
    assert in_words(ArgumentError("x=3 is not allowed")) == "x=3 is not allowed"
    assert in_words(KeyError()) == "KeyError"


# --- Interruptions


def test_an_interrupt_keeps_what_is_there(
    posterior: stanadapt.Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(entrant: Entrant, repeat: int, plan: ComparisonPlan) -> Any:
        if entrant.label == "b":
            raise KeyboardInterrupt
        return entrant.label

    def keep(made: Attempt, idata: Any, *_: Any) -> None:
        source = attempt(made.label, 1)
        made.status, made.figures, made.idata = OK, source.figures, source.idata

    running = importlib.import_module("stanadapt.comparisons.running")
    stand_ins = {"_prime": lambda *_: None, "_sample": sample, "_keep": keep}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(running, name, stand_in)
    monkeypatch.setattr(running, "attributes", lambda _: {"method": "rwm"})
    attempts, _ = run_all(plan_for(posterior, ["a", "b", "c"]))
    assert [each.status for each in attempts] == [OK, INTERRUPTED, NOT_RUN]
    with pytest.raises(KeyboardInterrupt):
        run_all(plan_for(posterior, ["b", "c"]))


def test_results_have_what_users_look_at(posterior: stanadapt.Posterior) -> None:
    found = evil_comparison(posterior)
    assert list(found.results) == [("a", 0), ("b", 0), (EVIL, 0)]
    assert set(datasets(found.results["a", 0])) == {"posterior"}
    assert math.isfinite(found.limit)
