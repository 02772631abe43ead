"""Which latents have a field, and with which heads, in programs of other kinds than series with a scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from densities import in_maps
from programs import TRUE_VALUES
from stanadapt.run.warmup import variable_groups
from stanadapt.transport.field_table import factors_in, latents_and_heads
from stanadapt.transport.fields import field_learning, heads, several
from stanadapt.transport.fields.effects_search import factors_of
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.innovation_search import NO_HEADS
from stanadapt.transport.fields.learned_law import Learned
from stanadapt.transport.fields.probes import Coupling, ScaledDensity, couple

# The position of a voter is a factor of all answers of a year, and a term of a walk.
VOTERS, YEARS, QUESTIONS = 9, 14, 12
POSITIONS = """
data { int J; int T; int K; array[J, T, K] int y; }
parameters { matrix[J, T] th; matrix[T, K] a; matrix[T, K] b; real log_s; }
model {
  log_s ~ normal(-1, 0.5); th[, 1] ~ normal(0, 2); to_vector(a) ~ normal(0, 2); to_vector(b) ~ normal(1, 0.5);
  for (t in 2:T) th[, t] ~ normal(th[, t - 1], exp(log_s));
  for (j in 1:J) for (t in 1:T) y[j, t] ~ bernoulli_logit(b[t] * th[j, t] - a[t]);
}
"""
# Waves that are even on both sides of 0, and odd ones, with the same five heads.
WAVES = """
data { int n; int M; vector[n] x; vector[n] y; }
parameters { vector[2 * M] z; vector[2 * M] w; real log_a; real log_b; real log_l; real log_r; real log_e; }
model {
  vector[n] mean = rep_vector(0, n);
  for (k in 1:M) {
    real d = exp(log_a - 0.02 * square(k) * exp(2 * log_l));
    real g = exp(log_b - 0.02 * square(k) * exp(log_r));
    mean += (z[2 * k - 1] * d + w[2 * k - 1] * g) * cos(k * x / 2);
    mean += (z[2 * k] * d + w[2 * k] * g) * sin(k * x / 2);
  }
  z ~ std_normal(); w ~ std_normal(); log_a ~ std_normal(); log_b ~ std_normal();
  log_l ~ normal(0, 0.5); log_r ~ normal(0, 0.5); log_e ~ normal(-1, 0.5); y ~ normal(mean, exp(log_e));
}
"""
SCHOOLS = """
data { int n; vector[n] y; }
parameters { vector[n] x; real m; real log_s; real log_e; }
model {
  m ~ std_normal(); log_s ~ std_normal(); log_e ~ std_normal();
  x ~ normal(m, exp(log_s)); y ~ normal(x, exp(log_e));
}
"""
# Latents of a saturating curve are far from normal, those of the walk beside it are not.
DRIFT = """
data { int T; vector[T] m; vector[T] y; }
parameters {
  vector[T] x; real log_s; real<lower=0, upper=1> d; real<lower=0> b; real<lower=0> k; real log_e;
}
model {
  vector[T] a;
  a[1] = m[1];
  for (t in 2:T) a[t] = m[t] + d * a[t - 1];
  log_s ~ normal(-2, 1); log_e ~ normal(-1, 1);
  x[1] ~ normal(5, 3); x[2:T] ~ normal(x[1:(T - 1)], exp(log_s));
  d ~ beta(2, 2); b ~ normal(0, 2); k ~ gamma(2, 1); y ~ normal(x + b * a ./ (a + k), exp(log_e));
}
"""
# Sums of three months are seen, and each month with another scale.
MONTHS = """
data { int Q; vector[Q] q; vector[3 * Q] m; }
parameters { vector[3 * Q] x; real a; real log_s; real log_q; real log_m; real l; }
model {
  a ~ normal(0.7, 0.3); l ~ normal(1, 0.3);
  log_s ~ normal(-1, 0.5); log_q ~ normal(-1, 0.5); log_m ~ normal(-1, 0.5);
  x[1] ~ std_normal(); x[2:(3 * Q)] ~ normal(tanh(a) * x[1:(3 * Q - 1)], exp(log_s));
  for (k in 1:Q) q[k] ~ normal(sum(x[(3 * k - 2):(3 * k)]), exp(log_q));
  m ~ normal(l * x, exp(log_m));
}
"""
PROCESSES = """
data { int G; int n; array[n] real t; array[G] vector[n] y; }
parameters { real log_l; real log_a; real log_e; array[G] vector[n] f; }
model {
  matrix[n, n] root = cholesky_decompose(add_diag(gp_exp_quad_cov(t, exp(log_a), exp(log_l)), 1e-4));
  log_l ~ normal(0, 0.3); log_a ~ normal(0, 0.5); log_e ~ normal(-1, 0.5);
  for (g in 1:G) { f[g] ~ multi_normal_cholesky(rep_vector(0, n), root); y[g] ~ normal(f[g], exp(log_e)); }
}
"""
# Persons with a mean and a series each; what is observed is their sum.
PERSONS = """
data { int S; int T; array[S, T] int y; }
parameters { vector[S] u; array[S] vector[T] e; real a; real log_u; real log_e; }
model {
  a ~ std_normal(); log_u ~ normal(-1, 1); log_e ~ normal(-1, 0.5); u ~ normal(0, exp(log_u));
  for (s in 1:S) {
    e[s, 1] ~ normal(0, exp(log_e)); e[s, 2:T] ~ normal(0.7 * e[s, 1:(T - 1)], exp(log_e));
    y[s] ~ poisson_log(a + u[s] + e[s]);
  }
}
"""
# Series of which none is tied to another one but by what all share, each with a scale and a level.
SERIES = """
data { int K; int T; matrix[T, K] y; }
parameters { vector[T] f; matrix[T, K] h; vector[K] m; vector[K] log_s; real log_f; }
model {
  m ~ std_normal(); log_s ~ normal(-1, 0.5); log_f ~ normal(0, 0.5); f ~ normal(0, exp(log_f));
  for (k in 1:K) {
    h[1, k] ~ normal(m[k], exp(log_s[k]));
    h[2:T, k] ~ normal(m[k] + 0.9 * (h[1:(T - 1), k] - m[k]), exp(log_s[k]));
    y[, k] ~ normal(f, exp(h[, k] / 2));
  }
}
"""
# Series of persons beside a curve that all share, with five heads; steps have two scales in turn.
SHARED = """
data { int S; int T; matrix[S, T] y; }
parameters {
  matrix[S, T] e; vector[T] m; real c; real log_s; real log_f; real log_y; real log_0; real log_m;
}
model {
  c ~ std_normal(); log_s ~ normal(-1, 0.5); log_f ~ normal(-1, 0.5); log_y ~ normal(-1, 0.5);
  log_0 ~ normal(-1, 0.5); log_m ~ std_normal(); m ~ normal(0, exp(log_m));
  e[, 1] ~ normal(0, exp(log_0));
  for (s in 1:S) {
    for (t in 2:T) e[s, t] ~ normal(tanh(c) * e[s, t - 1], exp(t % 2 == 0 ? log_s : log_f));
    y[s] ~ normal(m' + e[s], exp(log_y));
  }
}
"""
# A walk beside six seasons, whose sum is 0.
SEASONS = """
data { int T; array[T] int m; vector[T] y; }
parameters { vector[T] x; sum_to_zero_vector[6] a; real log_x; real log_a; real log_y; }
model {
  log_x ~ normal(-1, 0.5); log_a ~ std_normal(); log_y ~ normal(-1, 0.5);
  x[1] ~ normal(0, 2); x[2:T] ~ normal(x[1:(T - 1)], exp(log_x));
  target += -5 * log_a - 0.5 * dot_self(a) * exp(-2 * log_a);
  y ~ normal(x + a[m], exp(log_y));
}
"""
TESTLETS = """
data { int P; int I; int L; array[I] int l; array[P, I] int y; }
parameters { vector[P] th; vector[I] b; matrix[P, L] g; real log_t; vector[L] log_g; }
model {
  log_t ~ std_normal(); log_g ~ std_normal(); b ~ std_normal(); th ~ normal(0, exp(log_t));
  for (k in 1:L) g[, k] ~ normal(0, exp(log_g[k]));
  for (p in 1:P) for (i in 1:I) y[p, i] ~ bernoulli_logit(th[p] + g[p, l[i]] - b[i]);
}
"""
# Two factors and their interaction, which has one scale.
CROSSED = """
data { int A; int B; array[A, B] vector[2] y; }
parameters { vector[A] a; vector[B] b; matrix[A, B] c; vector[3] log_s; real log_e; }
model {
  log_s ~ std_normal(); log_e ~ std_normal();
  a ~ normal(0, exp(log_s[1])); b ~ normal(0, exp(log_s[2])); to_vector(c) ~ normal(0, exp(log_s[3]));
  for (i in 1:A) for (j in 1:B) y[i, j] ~ normal(a[i] + b[j] + c[i, j], exp(log_e));
}
"""


class Begun:
    """A program with data, and a point around which coordinates are looked for."""

    def __init__(self, program: str, data: dict[str, Any], unit: float = 0.3, **known: Any) -> None:
        self.density = ProgramDensity(program, data)
        self.names = list(self.density.model.unconstrained_names())
        self.variables = variable_groups(self.names)
        self.x, self.unit = np.zeros(len(self.names)), np.full(len(self.names), unit)
        for name, values in known.items():
            own = [k for k, full in enumerate(self.names) if full.partition(".")[0] == name]
            self.x[own] = np.ravel(values, order="F")

    def coupling(self) -> tuple[ScaledDensity, Coupling]:
        scaled = ScaledDensity(self.density, self.unit)
        coupling = couple(scaled, self.x / self.unit, self.variables)
        assert coupling is not None
        return scaled, coupling

    def learn(self) -> Learned | None:
        return learn_field(in_maps(self.density), self.x, self.unit, self.variables)[0]

    def heads(self, learned: Learned | None) -> set[str]:
        """The names of the heads that were found."""
        return set() if learned is None else {self.names[k] for k in latents_and_heads(learned.rows)[1]}


def voters() -> Begun:
    rng = np.random.default_rng(2)
    th = np.cumsum(0.3 * rng.normal(size=(VOTERS, YEARS)), axis=1) + np.linspace(-2, 2, VOTERS)[:, None]
    a, b = rng.normal(size=(YEARS, QUESTIONS)), 1.0 + 0.3 * rng.normal(size=(YEARS, QUESTIONS))
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(a - b * th[:, :, None])))
    data = {"J": VOTERS, "T": YEARS, "K": QUESTIONS, "y": y.tolist()}
    return Begun(POSITIONS, data, th=th, a=a, b=b, log_s=-1.2)


def test_terms_of_a_series_are_no_heads_of_what_they_are_factors_of() -> None:
    """Answers of a year hang together by nothing but the positions, which a walk ties."""
    begun = voters()
    scaled, coupling = begun.coupling()
    hubs = several._are_hubs(coupling, begun.variables)
    assert {begun.names[k] for k in np.flatnonzero(hubs)} == {"log_s"}
    assert not several.find_parts(scaled, coupling, begun.x / begun.unit, begun.variables)
    assert begun.heads(begun.learn()) == {"log_s"}


def test_parts_that_share_all_heads_are_no_series() -> None:
    """One field would have too many heads, but one for each part lacks some of them."""
    rng, n, M = np.random.default_rng(3), 120, 8
    x = np.linspace(-np.pi, np.pi, n)
    y = np.sin(x) + 0.5 * np.cos(2.0 * x) + 0.3 * rng.normal(size=n)
    z, w = 0.5 * rng.normal(size=2 * M), 0.5 * rng.normal(size=2 * M)
    begun = Begun(WAVES, {"n": n, "M": M, "x": x.tolist(), "y": y.tolist()}, z=z, w=w, log_e=-1.2)
    scaled, coupling = begun.coupling()
    parts = several._separate(coupling, several._are_hubs(coupling, begun.variables))
    assert len(parts) > 1
    assert not several.find_parts(scaled, coupling, begun.x / begun.unit, begun.variables)


def precisions(begun: Begun) -> list[set[str]]:
    """The heads of the sparse precisions that come into question."""
    scaled, coupling = begun.coupling()
    found = field_learning._sparse_precisions(
        scaled, begun.x / begun.unit, coupling, begun.variables, NO_HEADS, NO_HEADS
    )
    return [{begun.names[k] for k in precision.heads} for precision, _ in found]


def with_errors(n: int = 40) -> Begun:
    rng = np.random.default_rng(4)
    x = rng.normal(size=n)
    data = {
        "n": n,
        "w": (x + 0.5 * rng.normal(size=n)).tolist(),
        "y": (x + 0.3 * rng.normal(size=n)).tolist(),
    }
    return Begun(TRUE_VALUES, data, x=x, b=1.0, log_s=-0.7, log_e=-1.2)


def test_latents_that_nothing_ties_have_a_field_if_they_have_three_strong_heads() -> None:
    begun = with_errors()
    learned = begun.learn()
    assert begun.heads(learned) == {"b", "log_s", "log_e"}
    assert learned is not None
    moved, score, rng = in_maps(begun.density)(learned.rows), np.empty(begun.x.size), np.random.default_rng(1)
    for _ in range(5):
        z = rng.normal(size=begun.x.size)
        z[-3:] = begun.x[-3:] + 0.2 * rng.normal(size=3)
        moved(z, score)
        assert np.sqrt(np.mean(np.square(score + z)[:-3])) < 0.1


def test_groups_with_two_scales_have_no_field() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=40)
    begun = Begun(SCHOOLS, {"n": 40, "y": (x + 0.5 * rng.normal(size=40)).tolist()}, x=x, log_e=-0.7)
    assert precisions(begun) == []


def test_a_walk_beside_latents_that_are_not_normal_has_a_field_alone() -> None:
    """What is beside it begins with its own scale."""
    rng, T = np.random.default_rng(5), 80
    m = rng.gamma(1.0, 1.0, T)
    x = 5.0 + np.cumsum(0.1 * rng.normal(size=T))
    a = np.zeros(T)
    for t in range(T):
        a[t] = m[t] + (0.6 * a[t - 1] if t else 0.0)
    y = x + 2.0 * a / (a + 2.0) + 0.3 * rng.normal(size=T)
    known = {"x": x, "log_s": -2.3, "d": 0.4, "b": 0.7, "k": 0.7, "log_e": -1.2}
    begun = Begun(DRIFT, {"T": T, "m": m.tolist(), "y": y.tolist()}, unit=0.2, **known)
    learned = begun.learn()
    assert learned is not None
    assert begun.heads(learned) == {"log_s", "log_e"}
    latents = latents_and_heads(learned.rows)[0]
    assert {begun.names[k].partition(".")[0] for k in latents} <= {"x", "b"}
    beside = [begun.names.index(name) for name in ("d", "k")]
    assert learned.scale[beside].tolist() == [0.2, 0.2]
    assert (learned.scale[latents] == 1.0).all()


def test_a_series_has_a_weak_fifth_head_if_its_precision_is_cheap() -> None:
    rng, Q = np.random.default_rng(6), 20
    x = np.zeros(3 * Q)
    for t in range(1, 3 * Q):
        x[t] = 0.6 * x[t - 1] + 0.4 * rng.normal()
    q = x.reshape(Q, 3).sum(axis=1) + 0.3 * rng.normal(size=Q)
    data = {"Q": Q, "q": q.tolist(), "m": (x + 0.4 * rng.normal(size=3 * Q)).tolist()}
    known = {"x": x, "a": 0.7, "log_s": -0.9, "log_q": -1.2, "log_m": -0.9, "l": 1.0}
    begun = Begun(MONTHS, data, **known)
    assert begun.heads(begun.learn()) == {"a", "log_s", "log_q", "log_m", "l"}


def four_processes() -> Begun:
    rng, G, n = np.random.default_rng(7), 4, 25
    t = np.linspace(0.0, 5.0, n)
    root = np.linalg.cholesky(np.exp(-0.5 * (t[:, None] - t) ** 2) + 1e-4 * np.eye(n))
    f = root @ rng.normal(size=(n, G))
    data = {"G": G, "n": n, "t": t.tolist(), "y": (f + 0.3 * rng.normal(size=(n, G))).T.tolist()}
    return Begun(PROCESSES, data, unit=0.1, f=f, log_l=-0.1, log_e=-1.2)


def test_latents_that_are_all_tied_are_no_heads_of_their_part() -> None:
    """Each has many neighbours in a part of 25."""
    begun = four_processes()
    scaled, coupling = begun.coupling()
    assert len(several._separate(coupling, several._are_hubs(coupling, begun.variables))) == 4
    assert not several.find_parts(scaled, coupling, begun.x / begun.unit, begun.variables)


def test_a_dear_precision_is_tried_with_fewer_heads() -> None:
    found = precisions(four_processes())
    assert len(found[-1]) == field_learning.MOST_HEADS_LARGE
    assert found[-1] <= found[0]


def test_a_field_that_would_lack_a_strong_head_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, choose = with_errors(), heads.choose_heads

    def two(strengths: dict[int, float], least: float = heads.HEAD, most: int = 2) -> np.ndarray:
        return choose(strengths, least, most if least == heads.STRONG_HEAD else 2)

    assert precisions(begun) == [{"b", "log_s", "log_e"}]
    monkeypatch.setattr(field_learning, "choose_heads", two)
    assert precisions(begun) == []


def persons(count: int, times: int = 24) -> Begun:
    rng, e = np.random.default_rng(9), np.zeros((count, times))
    u = 0.5 * rng.normal(size=count)
    for t in range(times):
        e[:, t] = 0.7 * e[:, t - 1] * (t > 0) + 0.4 * rng.normal(size=count)
    y = rng.poisson(np.exp(1.0 + u[:, None] + e))
    known = {"u": u, "a": 1.0, "log_u": -0.7, "log_e": -0.9}
    begun = Begun(PERSONS, {"S": count, "T": times, "y": y.tolist()}, **known)
    begun.x[[name.startswith("e.") for name in begun.names]] = e.ravel()
    return begun


@pytest.mark.parametrize("count", [6, 9, 12])
def test_means_of_series_are_latents_of_one_field_with_their_scale_as_a_head(count: int) -> None:
    """Given the means, series would have a field each, in which they could not follow these."""
    begun = persons(count)
    scaled, coupling = begun.coupling()
    x = begun.x / begun.unit
    assert not coupling.wide[begun.names.index("log_u")]
    assert not several.find_parts(scaled, coupling, x, begun.variables)
    few, of_tied = several.scales_of_few(scaled, x, coupling, begun.variables)
    assert [begun.names[k] for k in few] == ["log_u"]
    assert not len(of_tied)
    tied = several.series_beside_others(coupling, begun.variables)
    assert tied is not None
    assert sorted(several.strengths_of_all(scaled, coupling, x, tied, few).of_heads) == sorted(
        begun.names.index(name) for name in ("log_u", "log_e")
    )
    assert several.are_followed(scaled, coupling, x, tied, few)
    learned = begun.learn()
    assert learned is not None
    found = begun.heads(learned)
    assert found >= {"log_u", "log_e"}
    assert all(name.startswith("u.") for name in found - {"log_u", "log_e"})  # faint ones pass for heads
    assert len(latents_and_heads(learned.rows)[0]) == count * 25 + 3 - len(found)


def test_effects_that_are_tied_have_no_scale_of_few_in_a_field_for_all() -> None:
    """Data tie them along with the series, and a sum that is 0 ties them to each other."""
    rng, T = np.random.default_rng(11), 58
    month = np.arange(T) % 6
    x = np.cumsum(0.2 * rng.normal(size=T))
    y = x + 0.3 * np.array([1.0, -1.0, 0.5, -0.5, 0.3, -0.3])[month] + 0.3 * rng.normal(size=T)
    data = {"T": T, "m": (month + 1).tolist(), "y": y.tolist()}
    known = {"x": x, "log_x": -1.6, "log_a": -0.7, "log_y": -1.2}
    begun = Begun(SEASONS, data, **known)
    scaled, coupling = begun.coupling()
    few, of_tied = several.scales_of_few(scaled, begun.x / begun.unit, coupling, begun.variables)
    assert not len(few)
    assert [begun.names[k] for k in of_tied] == ["log_a"]
    learned = begun.learn()
    assert begun.heads(learned) >= {"log_x", "log_y"}


def test_series_that_nothing_ties_are_told_from_columns_of_one() -> None:
    rng, K, T = np.random.default_rng(10), 5, 25
    h = -1.0 + np.cumsum(0.3 * rng.normal(size=(T, K)), axis=0)
    f = rng.normal(size=T)
    y = f[:, None] + np.exp(h / 2.0) * rng.normal(size=(T, K))
    begun = Begun(SERIES, {"K": K, "T": T, "y": y.tolist()}, f=f, h=h, m=-1.0, log_s=-1.2)
    _, coupling = begun.coupling()
    own = np.array([k for k, name in enumerate(begun.names) if name.startswith("h.")])
    divided = several.divide_series(coupling, own)
    assert [[begun.names[k] for k in one] for one in divided] == [
        [f"h.{t + 1}.{k + 1}" for t in range(T)] for k in range(K)
    ]
    assert not several.divide_series(coupling, own[:-1])  # of other lengths
    assert begun.heads(begun.learn()) >= {f"log_s.{k + 1}" for k in range(K)}


def test_series_with_the_same_heads_are_not_divided() -> None:
    """All persons share five heads, so that a field for each person would lack one as well."""
    rng, persons, times = np.random.default_rng(12), 4, 12
    e = 0.4 * rng.normal(size=(persons, times))
    known = {"c": 1.0, "log_s": -0.9, "log_f": -1.2, "log_y": -1.2, "log_0": -0.9, "m": 0.5}
    begun = Begun(SHARED, {"S": persons, "T": times, "y": (0.5 + e).tolist()}, e=e, **known)
    scaled, coupling = begun.coupling()
    tied = several.series_beside_others(coupling, begun.variables)
    assert tied is not None
    assert len(tied.series[0].divided) == persons
    (part,) = several.find_tied_parts(scaled, coupling, begun.x / begun.unit, tied)
    assert len(part.heads) == heads.MOST_HEADS
    assert np.isin([k for k, name in enumerate(begun.names) if name.startswith("e.")], part.places).all()


def answers_to_testlets(persons: int = 12, items: int = 8, count: int = 4) -> Begun:
    rng = np.random.default_rng(8)
    th, g, b = rng.normal(size=persons), 0.6 * rng.normal(size=(persons, count)), rng.normal(size=items)
    of = np.arange(items) * count // items
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(b - th[:, None] - g[:, of])))
    data = {"P": persons, "I": items, "L": count, "l": (of + 1).tolist(), "y": y.tolist()}
    return Begun(TESTLETS, data, th=th, g=g, b=b, log_g=np.full(count, -0.5))


def test_columns_of_a_matrix_are_effects_of_one_factor_with_scales_of_their_own() -> None:
    """The four scales of testlets, which are not tied to each other, are no effects."""
    begun = answers_to_testlets()
    coupling = begun.coupling()[1]
    assert [own.shape for own in factors_of(coupling, begun.variables)] == [(48, 1), (12, 1), (8, 1), (4, 1)]
    apart = factors_of(coupling, begun.variables, columns=True)
    assert [own.shape for own in apart] == [(12, 5), (8, 1)]
    assert [[begun.names[k] for k in own] for own in apart[0][:2]] == [
        [f"th.{p}", *(f"g.{p}.{k}" for k in range(1, 5))] for p in (1, 2)
    ]
    learned = begun.learn()
    assert learned is not None
    shapes = [law.own.shape for law in factors_in(learned.rows)]
    assert (12, 5) in shapes


def test_an_interaction_with_one_scale_is_one_factor() -> None:
    """Its columns are tied to a main effect too."""
    rng, A, B = np.random.default_rng(9), 8, 6
    a, b, c = rng.normal(size=A), rng.normal(size=B), 0.5 * rng.normal(size=(A, B))
    y = (a[:, None] + b + c)[:, :, None] + 0.5 * rng.normal(size=(A, B, 2))
    begun = Begun(CROSSED, {"A": A, "B": B, "y": y.tolist()}, a=a, b=b, c=c, log_e=-0.7)
    learned = begun.learn()
    assert learned is not None
    assert sorted(law.own.shape for law in factors_in(learned.rows)) == [(6, 1), (8, 1), (48, 1)]
