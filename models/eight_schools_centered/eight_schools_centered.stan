// Eight schools, centred: the posterior of eight_schools with the effects themselves as
// parameters. As tau nears 0 it narrows to a funnel, which makes it hard to sample.
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
  vector[J] theta; // effects
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  theta ~ normal(mu, tau);
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
