// A Gaussian of given mean and covariance, here with condition number 100. It has no
// observations: it is a test of samplers, whose moments are its data.
data {
  int<lower=1> d;
  vector[d] mu;
  cov_matrix[d] Sigma;
}
transformed data {
  matrix[d, d] chol = cholesky_decompose(Sigma);
}
parameters {
  vector[d] x;
}
model {
  x ~ multi_normal_cholesky(mu, chol);
}
