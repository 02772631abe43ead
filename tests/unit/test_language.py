"""What stanli refuses is said in a sentence with its line, and the page on what runs is true."""

# ruff: noqa: E501 (a program is one line)
from __future__ import annotations

from pathlib import Path

import pytest

import language
import stanadapt
from stanadapt.errors import DataError, ModelError
from stanadapt.model.backends.contract import RefusedDataError, RefusedError
from stanadapt.model.backends.stan.stanli_words import in_words
from stanadapt.model.includes import ProgramText

NORMAL = "parameters { real x; }\nmodel { x ~ normal(0, 1); }\n"


def test_the_page_says_what_the_programs_show() -> None:
    assert language.PAGE.read_text("utf-8") == language.page(), "run python tests/language.py"


# By the feature: a program whose line 3 has it, and what is said.
REFUSED = {
    "jacobian": (
        "parameters { real ls; }\ntransformed parameters {\nreal s = exp(ls); jacobian += ls;\n}\nmodel { s ~ gamma(2, 1); }",
        r"`jacobian \+=`, line 3: .*\(`target \+=` in the model block does the same\)",
    ),
    "tuple": (
        "// a tuple\nparameters { real x; }\ntransformed parameters { tuple(real, real) t = (x, x); } model { t.1 ~ normal(0, 1); }",
        "tuples, line 3: ",
    ),
    "tuple data": ("\ndata {\ntuple(int, real) t; }\n" + NORMAL, "tuples, line 3: "),
    "complex": (
        '// complex\ntransformed data { print("complex"); }\nparameters { complex z; } model { target += -norm(z); }',
        "complex numbers, line 3: ",
    ),
    "stochastic": (
        "parameters {\n\nrow_stochastic_matrix[2, 3] a;\n}\nmodel { }",
        "row_stochastic_matrix, line 3: .*simplexes",
    ),
    "function": (
        "parameters { real x; } model {\n\ntarget += modulus(3, 2);\nx ~ normal(0, 1); }",
        "the function modulus, line 3: ",
    ),
    "generated": (
        NORMAL + "generated quantities { array[2] int y = multinomial_rng([0.5, 0.5]', 3); }",
        "the function multinomial_rng, line 3: ",
    ),
    "fatal_error": (
        'parameters { real x; } model {\n\nif (x > 9) fatal_error("far");\nx ~ normal(0, 1); }',
        "fatal_error, line 3: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_feature_and_line_and_not_the_data(name: str) -> None:
    code, said = REFUSED[name]
    data = {"t": {"1": 1, "2": 2.0}} if name == "tuple data" else None
    with pytest.raises(RefusedError, match=rf"^stanli, which runs .* does not cover {said}") as caught:
        stanadapt.Posterior(code, data, backend="stanli")
    text = str(caught.value)
    assert "\n" not in text
    for word in ("data", "mir", "((", "pattern", "meta"):
        assert word not in text.partition(", line 3: ")[0]


def test_a_feature_of_an_included_file_has_its_line_there(tmp_path: Path) -> None:
    (tmp_path / "more.stan").write_text("\n// matrix_power(m)\ntarget += sum(matrix_power(m, 2));\n")
    program = tmp_path / "program.stan"
    program.write_text("parameters { matrix[2, 2] m; }\nmodel {\n#include more.stan\n}\n")
    with pytest.raises(RefusedError, match=r"the function matrix_power, line 3 of more\.stan: 'target"):
        stanadapt.Posterior(program, backend="stanli")


@pytest.mark.parametrize(
    "statement",
    [
        "vector[N] v;",
        "array[2] int z = {1, 2}; int a = z[N];",
        "vector[3] v = [1, 2, 3]'; real a = sum(v[2:-N]);",
    ],
)
def test_data_are_blamed_where_values_of_theirs_do_not_go_together(statement: str) -> None:
    code = f"data {{ int N; }} transformed data {{ {statement} }} {NORMAL}"
    for backend in ("stanli", "auto"):
        with pytest.raises(
            RefusedDataError, match=r"^data: the Stan program cannot be opened with them: [^|(]*$"
        ):
            stanadapt.Posterior(code, {"N": -7}, backend=backend)


def test_a_program_without_data_has_none_to_blame() -> None:
    with pytest.raises(ModelError, match="cannot be opened") as caught:
        stanadapt.Posterior(
            "transformed data { array[1] int z = {1}; int a = z[7]; }" + NORMAL, backend="stanli"
        )
    assert "data:" not in str(caught.value)
    with pytest.raises(ModelError, match="it has no data: cholesky_decompose"):
        stanadapt.Posterior("transformed data { matrix[1, 1] l = cholesky_decompose([[-1.0]]); }" + NORMAL)


def test_what_the_checks_of_data_say_is_about_data() -> None:
    with pytest.raises(DataError, match=r"data do not fit the Stan program: .*must be"):
        stanadapt.Posterior("data { real<lower=0> s; }" + NORMAL, {"s": -1.0})


def test_a_branch_that_is_never_taken_is_not_blamed_on_data() -> None:
    code = "data { int N; } parameters { real x; } model { vector[3] v = [1, 2, 3]'; x ~ normal(0, 1); "
    with pytest.raises(RefusedError):
        stanadapt.Posterior(code + "if (x > 100) target += v[N]; }", {"N": 10}, backend="stanli")
    assert stanadapt.Posterior(code + "if (N < 4) target += v[N]; }", {"N": 10}).dim == 1


@pytest.mark.parametrize(
    "reason", ["std::bad_alloc", "stanli compile: std::bad_alloc", "vector::_M_default_append"]
)
def test_too_little_memory_is_memory(reason: str) -> None:
    error = in_words(reason, ProgramText("data { int N; }" + NORMAL))
    assert type(error) is ModelError
    assert "there is not enough memory" in str(error)


def test_sizes_of_transformed_data_beyond_memory_are_refused_before_they_are_made() -> None:
    code = "data { int N; } transformed data { matrix[N, N] m = rep_matrix(1, N, N); }" + NORMAL
    with pytest.raises(ModelError, match=r"m \(matrix.*GiB to open"):
        stanadapt.Posterior(code, {"N": 10_000_000})
