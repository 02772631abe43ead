// Varying intercepts in J groups of unequal size with one common slope, non-centred. Data are
// synthetic.
// Gelman and Hill (2007), Data Analysis Using Regression and Multilevel/Hierarchical Models,
// chapter 12.
data {
  int<lower=1> N; // observations
  int<lower=1> J; // groups
  array[N] int<lower=1, upper=J> group;
  vector[N] x;
  vector[N] y;
}
parameters {
  real mu; // mean intercept
  real<lower=0> tau; // spread of the intercepts
  vector[J] alpha_trans; // standardised intercepts
  real beta; // slope
  real<lower=0> sigma; // noise
}
transformed parameters {
  vector[J] alpha = mu + tau * alpha_trans;
}
model {
  mu ~ normal(0, 5);
  tau ~ normal(0, 2.5);
  alpha_trans ~ std_normal();
  beta ~ normal(0, 2.5);
  sigma ~ exponential(1);
  y ~ normal(alpha[group] + beta * x, sigma);
}
generated quantities {
  vector[N] log_lik;
  vector[N] y_rep;
  for (n in 1 : N) {
    real location = alpha[group[n]] + beta * x[n];
    log_lik[n] = normal_lpdf(y[n] | location, sigma);
    y_rep[n] = normal_rng(location, sigma);
  }
}
