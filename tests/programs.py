"""Stan programs that more than one file of tests runs."""

from __future__ import annotations

# Parameters, integers and a log likelihood, as scalars, vectors and matrices.
SHAPES = """
data { int n; }
parameters { real v; matrix[2, 3] x; }
model { v ~ normal(0, 3); to_vector(x) ~ std_normal(); }
generated quantities {
  array[n] int k;
  vector[n] log_lik = rep_vector(v, n);
  for (i in 1:n) k[i] = poisson_rng(3);
}
"""

# A random walk that is observed with unit noise.
WALK = """
data { int T; vector[T] y; }
parameters { real log_s; vector[T] h; }
model {
  log_s ~ normal(-1, 2); h[1] ~ normal(0, exp(log_s)); h[2:T] ~ normal(h[1:T-1], exp(log_s));
  y ~ normal(h, 1);
}
"""

# An autoregression with noise, some of whose data are missing.
MISSING = """
data { int T; int M; array[T - M] int seen; array[M] int unseen; vector[T - M] y_seen; }
parameters { real log_s; real log_e; vector[T] h; vector[M] y_unseen; }
model {
  vector[T] y;
  y[seen] = y_seen; y[unseen] = y_unseen;
  log_s ~ std_normal(); log_e ~ std_normal();
  h[1] ~ normal(0, exp(log_s) / sqrt(1 - 0.9^2)); h[2:T] ~ normal(0.9 * h[1:(T - 1)], exp(log_s));
  y ~ normal(h, exp(log_e));
}
"""

# The example of CmdStan's User's Guide, with its data.
BERNOULLI = """
data { int<lower=0> N; array[N] int<lower=0, upper=1> y; }
parameters { real<lower=0, upper=1> theta; }
model { theta ~ beta(1, 1); y ~ bernoulli(theta); }
"""
FLIPS = {"N": 10, "y": [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]}

# A regression on a covariate that is seen with errors: nothing ties its true values to each other.
TRUE_VALUES = """
data { int n; vector[n] w; vector[n] y; }
parameters { vector[n] x; real b; real log_s; real log_e; }
model {
  b ~ normal(1, 0.5); log_s ~ normal(-1, 0.3); log_e ~ normal(-1, 1);
  x ~ std_normal(); w ~ normal(x, exp(log_s)); y ~ normal(b * x, exp(log_e));
}
"""
