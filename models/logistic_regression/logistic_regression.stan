// Bayesian logistic regression with normal priors. The predictors are of different scales, the
// first of them the intercept, so the posterior is too. Data are synthetic.
// Gelman et al. (2013), Bayesian Data Analysis, 3rd edition, section 16.1.
data {
  int<lower=1> N; // observations
  int<lower=1> d; // predictors
  matrix[N, d] X;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector[d] beta;
}
model {
  beta ~ normal(0, 5);
  y ~ bernoulli_logit_glm(X, 0, beta);
}
