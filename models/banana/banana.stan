// The banana: N(0, diag(sigma^2, 1, ..., 1)) with x[2] shifted by b (x[1]^2 - sigma^2).
// Haario, Saksman and Tamminen (1999), Computational Statistics 14(3), with the sign of x[2]
// turned as in the demonstrations of Strathmann et al. (2015), arXiv:1506.02564.
data {
  int<lower=2> d;
  real<lower=0> b; // bend
  real<lower=0> sigma; // standard deviation of x[1]
}
parameters {
  vector[d] x;
}
model {
  x[1] ~ normal(0, sigma);
  x[2] ~ normal(b * (square(x[1]) - square(sigma)), 1);
  x[3 : d] ~ std_normal();
}
