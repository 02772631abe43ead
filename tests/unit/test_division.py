"""Integers that no processor can divide end in an error in words; the process lives on."""

from __future__ import annotations

import concurrent.futures
import platform
import signal
import subprocess
import sys

import pytest

import stanadapt
from stanadapt.model.backends.stan import division
from stanadapt.model.backends.stan.division import SMALLEST

traps = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the signal of such a division is handled on Linux with x86-64",
)

DATA = "data { int a; int b; }\n"
NORMAL = "parameters { real x; } model { x ~ normal(0, 1); }\n"
OPENED = {
    "quotient": "transformed data { int c = a %/% b; }" + NORMAL,
    "remainder": "transformed data { int c = a % b; }" + NORMAL,
    "slash": "transformed data { int c = a / b; }" + NORMAL,
    "generated": NORMAL + "generated quantities { int c = a %/% b; }",
    "sized": "transformed data { array[3] int c; c[1 + a % b] = 1; }" + NORMAL,
    "function": "transformed data { int c = f(a, b); }" + NORMAL,
}
EVALUATED = {
    "quotient": "parameters { real x; } model { x ~ normal(a %/% b, 1); }",
    "slash": "parameters { real x; } model { x ~ normal(a / b, 1); }",
    "branch": "parameters { real x; } model { x ~ normal(x > 0 ? a %/% b : 0, 1); }",
}
FUNCTION = "functions { int f(int a, int b) { return a %/% b; } }\n"
WORDS = "divides the smallest integer, -2147483648, by -1"


def _program(name: str) -> str:
    return (FUNCTION if name == "function" else "") + DATA + OPENED[name]


@traps
def test_python_lives_on() -> None:
    code = f"""
import stanadapt
try:
    stanadapt.Posterior({_program("quotient")!r}, {{"a": {SMALLEST}, "b": -1}})
except stanadapt.errors.DataError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.returncode
    assert WORDS in done.stdout


@traps
@pytest.mark.parametrize("name", OPENED)
def test_opening_says_which_division_has_no_quotient(name: str) -> None:
    with pytest.raises(stanadapt.errors.DataError, match=WORDS):
        stanadapt.Posterior(_program(name), {"a": SMALLEST, "b": -1})


@traps
@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_says_it(name: str) -> None:
    posterior = stanadapt.Posterior(DATA + EVALUATED[name], {"a": SMALLEST, "b": -1})
    for evaluate in (posterior.log_density, posterior.log_density_gradient):
        with pytest.raises(stanadapt.errors.EvaluationError, match=WORDS):
            evaluate([0.5])


@pytest.mark.parametrize("name", EVALUATED)
def test_other_quotients_are_what_they_are(name: str) -> None:
    for a, b, quotient in ((7, -2, -3), (SMALLEST, 1, SMALLEST), (SMALLEST + 1, -1, -SMALLEST - 1)):
        posterior = stanadapt.Posterior(DATA + EVALUATED[name], {"a": a, "b": b})
        assert posterior.log_density([0.5]) == pytest.approx(-0.5 * (0.5 - quotient) ** 2, rel=1e-12)


@traps
@pytest.mark.parametrize("method", ["rwm", "nuts"])
def test_a_run_ends_with_it(method: str) -> None:
    code = DATA + EVALUATED["branch"]
    with pytest.raises(stanadapt.errors.EvaluationError, match=WORDS):
        stanadapt.sample(
            code,
            {"a": SMALLEST, "b": -1},
            method=method,
            chains=2,
            warmup=200,
            draws=200,
            seed=1,
            inits=[{"x": 1.0}, {"x": 1.0}],
            progress=False,
        )


@traps
def test_a_division_in_one_thread_is_none_in_another() -> None:
    bad = stanadapt.Posterior(DATA + EVALUATED["quotient"], {"a": SMALLEST, "b": -1})
    good = stanadapt.Posterior(DATA + EVALUATED["quotient"], {"a": 4, "b": 2})

    def failures(posterior: stanadapt.Posterior) -> int:
        count = 0
        for _ in range(200):
            try:
                posterior.log_density([0.5])
            except stanadapt.errors.EvaluationError:
                count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(failures, [bad, good])) == [200, 0]


@traps
def test_a_program_after_it_is_not_blamed() -> None:
    with pytest.raises(stanadapt.errors.DataError):
        stanadapt.Posterior(_program("remainder"), {"a": SMALLEST, "b": -1})
    posterior = stanadapt.Posterior(_program("remainder"), {"a": 7, "b": -1})
    assert posterior.log_density([1.0]) == pytest.approx(-0.5)


@traps
def test_the_signal_of_others_goes_to_whom_it_went_before() -> None:
    code = f"""
import faulthandler, os, signal, stanadapt
{"signal.signal(signal.SIGFPE, lambda *_: print('heard', flush=True))"}
stanadapt.Posterior({NORMAL!r})
os.kill(os.getpid(), signal.SIGFPE)
os.getpid()
signal.signal(signal.SIGFPE, signal.SIG_DFL)
stanadapt.Posterior({NORMAL!r})
os.kill(os.getpid(), signal.SIGFPE)
print("not reached")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "heard\n", done.stdout + done.stderr
    assert done.returncode == -signal.SIGFPE


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f7f9c366", (2, False)),  # idiv ecx
        ("41f7f8", (3, False)),  # idiv r8d
        ("49f7f8", (3, True)),  # idiv r8
        ("f77df8", (3, False)),  # idiv dword ptr [rbp-8]
        ("f77c2408", (4, False)),  # idiv dword ptr [rsp+8]
        ("f7bd00ffffff", (6, False)),  # idiv dword ptr [rbp-256]
        ("f73d00010000", (6, False)),  # idiv dword ptr [rip+256]
        ("f73c2500010000", (7, False)),  # idiv dword ptr [256]
        ("43f73c81", (4, False)),  # idiv dword ptr [r9+4*r8]
        ("f7f1", (0, False)),  # div ecx, whose operands have no sign
        ("f20f5ec1", (0, False)),  # divsd xmm0, xmm1
    ],
)
def test_instructions_are_read_to_their_end(code: str, expected: tuple[int, bool]) -> None:
    assert division._idiv(bytes.fromhex(code).ljust(15, b"\x90")) == expected
