// Linear regression with the conjugate normal-inverse-gamma prior, so the posterior is known in
// closed form. Data are synthetic.
// Gelman et al. (2013), Bayesian Data Analysis, 3rd edition, sections 3.3 and 14.8.
data {
  int<lower=1> N; // observations
  int<lower=1> d; // predictors, the intercept among them
  matrix[N, d] X;
  vector[N] y;
  real<lower=0> prior_sd; // of each coefficient, in units of sigma
  real<lower=0> prior_shape; // of sigma_sq
  real<lower=0> prior_scale; // of sigma_sq
}
parameters {
  vector[d] beta;
  real<lower=0> sigma_sq; // variance of the noise
}
transformed parameters {
  real<lower=0> sigma = sqrt(sigma_sq);
}
model {
  sigma_sq ~ inv_gamma(prior_shape, prior_scale);
  beta ~ normal(0, prior_sd * sigma);
  y ~ normal(X * beta, sigma);
}
