// Eight schools, non-centred: the effects of coaching on test scores in J parallel experiments.
// Rubin (1981), Journal of Educational Statistics 6(4); Gelman et al. (2013), Bayesian Data
// Analysis, 3rd edition, section 5.5. Priors as in PosteriorDB.
data {
  int<lower=1> J; // schools
  array[J] real y; // estimated effects
  array[J] real<lower=0> sigma; // their standard errors
}
parameters {
  real mu; // mean effect
  real<lower=0> tau; // spread of the effects
  vector[J] theta_trans; // standardised effects
}
transformed parameters {
  vector[J] theta = mu + tau * theta_trans;
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  theta_trans ~ std_normal();
  y ~ normal(theta, sigma);
}
generated quantities {
  vector[J] log_lik;
  vector[J] y_rep;
  for (j in 1 : J) {
    log_lik[j] = normal_lpdf(y[j] | theta[j], sigma[j]);
    y_rep[j] = normal_rng(theta[j], sigma[j]);
  }
}
