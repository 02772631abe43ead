// Binary classification by Bayesian logistic regression with standard normal priors, as in Titsias and
// Dellaportas (2019), Gradient-based Adaptive MCMC, and Titsias (2023), Fisher Adaptive Langevin Sampling.
// A column of ones in X makes an intercept. Data are synthetic.
data {
  int<lower=1> N; // observations
  int<lower=1> d; // inputs
  matrix[N, d] X;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector[d] beta;
}
model {
  beta ~ std_normal();
  y ~ bernoulli_logit(X * beta);
}
