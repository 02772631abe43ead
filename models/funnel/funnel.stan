// Neal's funnel: v sets the log variance of d independent x. The neck (v < 0) needs steps
// hundreds of times smaller than the mouth, so samplers of one step size are biased here.
// Neal (2003), Slice Sampling, Annals of Statistics 31(3), section 8.
data {
  int<lower=1> d;
}
parameters {
  real v;
  vector[d] x;
}
model {
  v ~ normal(0, 3);
  x ~ normal(0, exp(v / 2));
}
