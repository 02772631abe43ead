/* A library with BridgeStan's C interface, without Stan: what tests open where no compiled model is at hand.

   It stands for this program, with a standard Gaussian on the unconstrained scale, whose constants it keeps if
   it is asked for them:

       parameters { vector[2] x; real<lower=0> sigma; }
       transformed parameters { real total = sum(x) + sigma; }
       model { x ~ std_normal(); sigma ~ lognormal(0, 1); }
       generated quantities {
         matrix[2, 3] q;             // q[i, j] = 10 i + j
         complex z;                  // x[1] + sigma i
         tuple(real, vector[2]) t;   // (x[1], x)
         real u = uniform_rng(0, 1);
         real process;               // the process id if data have "who", else 0
       }

   Names found in the JSON data change what it does: "fail" refuses the data, "crash" ends the process at the
   first gradient, "reject" has no density where x[1] > 1, "print" prints x[1] in two parts at each density,
   "tuples" are refused unless they are an array of objects.
*/
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  bool crash, reject, who, print;
} bs_model;

typedef struct {
  uint64_t state;
  uint64_t rest[18];  // as much memory as Stan's own generator has, which is looked at
} bs_rng;

#ifndef MAJOR  // BridgeStan's version, which only those who open it as a library of BridgeStan's look at
#define MAJOR 0
#define MINOR 0
#define PATCH 0
#endif
int bs_major_version = MAJOR;
int bs_minor_version = MINOR;
int bs_patch_version = PATCH;

#define PARAMETERS "x.1,x.2,sigma"
#define TRANSFORMED ",total"
#define GENERATED ",q.1.1,q.2.1,q.1.2,q.2.2,q.1.3,q.2.3,z.real,z.imag,t:1,t:2.1,t:2.2,u,process"

static void (*print_callback)(const char *, int);

static int failed(char **message, const char *text) {
  if (message) *message = strdup(text);
  return -1;
}

void bs_free_error_msg(char *message) { free(message); }

bs_model *bs_model_construct(const char *data, unsigned int seed, char **message) {
  (void)seed;
  if (strstr(data, "\"fail\"")) {
    failed(message, "fail is no data of this program");
    return NULL;
  }
  const char *tuples = strstr(data, "\"tuples\"");
  if (tuples && !strstr(tuples, "[{")) {
    failed(message, "tuples are objects");
    return NULL;
  }
  bs_model *model = malloc(sizeof(bs_model));
  model->crash = strstr(data, "\"crash\"");
  model->reject = strstr(data, "\"reject\"");
  model->print = strstr(data, "\"print\"");
  model->who = strstr(data, "\"who\"");
  return model;
}

void bs_model_destruct(bs_model *model) { free(model); }

const char *bs_name(const bs_model *model) {
  (void)model;
  return "gaussian_model";
}

const char *bs_model_info(const bs_model *model) {
  (void)model;
#ifdef THREADS
  return "STAN_THREADS=true";
#else
  return "STAN_THREADS=false";
#endif
}

const char *bs_param_names(const bs_model *model, bool transformed, bool generated) {
  (void)model;
  if (transformed) return generated ? PARAMETERS TRANSFORMED GENERATED : PARAMETERS TRANSFORMED;
  return generated ? PARAMETERS GENERATED : PARAMETERS;
}

const char *bs_param_unc_names(const bs_model *model) {
  (void)model;
  return PARAMETERS;
}

int bs_param_num(const bs_model *model, bool transformed, bool generated) {
  (void)model;
  return 3 + (transformed ? 1 : 0) + (generated ? 13 : 0);
}

int bs_param_unc_num(const bs_model *model) {
  (void)model;
  return 3;
}

bs_rng *bs_rng_construct(unsigned int seed, char **message) {
  (void)message;
  bs_rng *rng = calloc(1, sizeof(bs_rng));
  rng->state = seed;
  return rng;
}

void bs_rng_destruct(bs_rng *rng) { free(rng); }

/* splitmix64 */
static double uniform(bs_rng *rng) {
  uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int bs_param_constrain(const bs_model *model, bool transformed, bool generated, const double *theta_unc,
                       double *theta, bs_rng *rng, char **message) {
  double sigma = exp(theta_unc[2]);
  *theta++ = theta_unc[0];
  *theta++ = theta_unc[1];
  *theta++ = sigma;
  if (transformed) *theta++ = theta_unc[0] + theta_unc[1] + sigma;
  if (!generated) return 0;
  if (!rng) return failed(message, "generated quantities need a random number generator");
  for (int j = 1; j <= 3; ++j)
    for (int i = 1; i <= 2; ++i) *theta++ = 10 * i + j;
  *theta++ = theta_unc[0];
  *theta++ = sigma;
  *theta++ = theta_unc[0];
  *theta++ = theta_unc[0];
  *theta++ = theta_unc[1];
  *theta++ = uniform(rng);
  *theta++ = model->who ? (double)getpid() : 0.0;
  return 0;
}

int bs_param_unconstrain(const bs_model *model, const double *theta, double *theta_unc, char **message) {
  (void)model;
  if (!(theta[2] > 0)) return failed(message, "sigma is not positive");
  theta_unc[0] = theta[0];
  theta_unc[1] = theta[1];
  theta_unc[2] = log(theta[2]);
  return 0;
}

int bs_param_unconstrain_json(const bs_model *model, const char *json, double *theta_unc, char **message) {
  const char *x = strstr(json, "\"x\""), *sigma = strstr(json, "\"sigma\"");
  if (!x || !sigma) return failed(message, "x and sigma are needed");
  char *end;
  double theta[3];
  theta[0] = strtod(strchr(x, '[') + 1, &end);
  theta[1] = strtod(strchr(end, ',') + 1, &end);
  theta[2] = strtod(strchr(sigma + 7, ':') + 1, &end);
  return bs_param_unconstrain(model, theta, theta_unc, message);
}

int bs_param_initialize(const bs_model *model, const char *inits, bs_rng *rng, double radius, int tries,
                        bool jacobian, double *theta_unc, char **message) {
  (void)model, (void)inits, (void)tries, (void)jacobian, (void)message;
  for (int i = 0; i < 3; ++i) theta_unc[i] = radius * (2 * uniform(rng) - 1);
  return 0;
}

int bs_log_density(const bs_model *model, bool propto, bool jacobian, const double *x, double *value,
                   char **message) {
  (void)jacobian;
  if (model->print && print_callback) {
    char number[32];
    print_callback("x is ", 5);
    print_callback(number, snprintf(number, sizeof(number), "%g\n", x[0]));
  }
  if (model->reject && x[0] > 1) return failed(message, "x is above one");
  *value = -0.5 * (x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);
  if (!propto) *value -= 1.5 * log(2 * M_PI);
  return 0;
}

int bs_log_density_gradient(const bs_model *model, bool propto, bool jacobian, const double *x, double *value,
                            double *gradient, char **message) {
  if (model->crash) abort();
  for (int i = 0; i < 3; ++i) gradient[i] = -x[i];
  return bs_log_density(model, propto, jacobian, x, value, message);
}

int bs_log_density_hessian(const bs_model *model, bool propto, bool jacobian, const double *x, double *value,
                           double *gradient, double *hessian, char **message) {
  for (int i = 0; i < 9; ++i) hessian[i] = i % 4 == 0 ? -1 : 0;
  return bs_log_density_gradient(model, propto, jacobian, x, value, gradient, message);
}

int bs_log_density_hessian_vector_product(const bs_model *model, bool propto, bool jacobian, const double *x,
                                          const double *v, double *value, double *product, char **message) {
  for (int i = 0; i < 3; ++i) product[i] = -v[i];
  return bs_log_density(model, propto, jacobian, x, value, message);
}

void bs_set_print_callback(void (*print)(const char *, int), char **message) {
  (void)message;
  print_callback = print;
}
