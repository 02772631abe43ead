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
