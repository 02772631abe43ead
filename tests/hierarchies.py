"""Programs of hierarchies, in every parametrisation."""

from __future__ import annotations


def two_level_program(centred: bool, upper_centred: bool) -> str:
    """A hierarchy of two levels, each of them centred or not."""
    derived = "" if upper_centred else "vector[J] mu = mu0 + omega * f;"
    derived += "" if centred else "vector[N] theta = mu[parent] + tau * e;"
    return f"""
    data {{ int J; int N; array[N] int parent; vector[N] y; }}
    parameters {{
      vector[N] {"theta" if centred else "e"}; real<lower=0> tau;
      vector[J] {"mu" if upper_centred else "f"}; real<lower=0> omega; real mu0;
    }}
    transformed parameters {{ {derived} }}
    model {{
      mu0 ~ normal(0, 3); omega ~ normal(0, 2); tau ~ normal(0, 2);
      {"mu ~ normal(mu0, omega);" if upper_centred else "f ~ std_normal();"}
      {"theta ~ normal(mu[parent], tau);" if centred else "e ~ std_normal();"}
      y ~ normal(theta, 1);
    }}
    """


def lines_program(centred: bool, *, known_error: bool = False) -> str:
    """A line for each group, with intercepts and slopes that are independent, both centred or not."""
    line = "a[j] + b[j] * t" if centred else "mu[1] + tau[1] * a[j] + (mu[2] + tau[2] * b[j]) * t"
    laws = ("normal(mu[1], tau[1])", "normal(mu[2], tau[2])") if centred else ("std_normal()", "std_normal()")
    return f"""
    data {{ int J; int T; vector[T] t; matrix[J, T] y; {"real<lower=0> sigma;" if known_error else ""} }}
    parameters {{
      vector[J] a; vector[J] b; vector[2] mu; vector<lower=0>[2] tau;
      {"" if known_error else "real<lower=0> sigma;"}
    }}
    model {{
      mu ~ normal(0, 3); tau ~ normal(0, 1); sigma ~ normal(0, 1);
      a ~ {laws[0]}; b ~ {laws[1]};
      for (j in 1:J) y[j] ~ normal({line}, sigma);
    }}
    """
