// A Gaussian of given mean and precision matrix P, the inverse of its covariance: the fastest way to
// write one, a product with P for the density and one for its gradient. Here two parameters with
// correlation 0.99. Titsias and Dellaportas (2019), Gradient-based Adaptive MCMC, section 4.1.
data {
  int<lower=1> d;
  vector[d] mu;
  matrix[d, d] P;
}
parameters {
  vector[d] x;
}
model {
  target += -0.5 * dot_product(x - mu, P * (x - mu));
}
