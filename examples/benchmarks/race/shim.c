/* A library with BridgeStan's C interface that hands every call on to stanli's, and counts gradients.

   nutpie and walnutpie open a BridgeStan library by its path. stanli's own would do; this one stands between
   for two reasons. Every sampler's gradients are counted in the same way, and a model holds several copies of
   itself: stanli locks a model while it evaluates it, so that threads which share one would wait for each other.

   Compiled with -DSTANLI="path of libstanli.so".
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  _Alignas(64) int busy; /* a cache line of its own: threads write to it at every call */
  void *model;           /* stanli's */
  int64_t gradients;
} copy;

typedef struct model {
  int n;
  copy *copies;
  struct model *next;
} model;

int bs_major_version, bs_minor_version, bs_patch_version;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static model *models;           /* the open ones */
static int64_t gradients_closed; /* of models that are closed */
static int copies_wanted = 1;
static _Thread_local int usual; /* the copy that this thread took last */

static void (*free_error_msg)(char *);
static void *(*model_construct)(const char *, unsigned int, char **);
static void (*model_destruct)(void *);
static const char *(*name)(const void *);
static const char *(*model_info)(const void *);
static const char *(*param_names)(const void *, bool, bool);
static const char *(*param_unc_names)(const void *);
static int (*param_num)(const void *, bool, bool);
static int (*param_unc_num)(const void *);
static int (*param_constrain)(const void *, bool, bool, const double *, double *, void *, char **);
static int (*param_unconstrain)(const void *, const double *, double *, char **);
static int (*param_unconstrain_json)(const void *, const char *, double *, char **);
static int (*param_initialize)(const void *, const char *, void *, double, int, bool, double *, char **);
static int (*log_density)(const void *, bool, bool, const double *, double *, char **);
static int (*log_density_gradient)(const void *, bool, bool, const double *, double *, double *, char **);
static int (*log_density_hessian)(const void *, bool, bool, const double *, double *, double *, double *, char **);
static int (*log_density_hvp)(const void *, bool, bool, const double *, const double *, double *, double *, char **);
static void *(*rng_construct)(unsigned int, char **);
static void (*rng_destruct)(void *);
static int (*set_print_callback)(void *, char **);

__attribute__((constructor)) static void load(void) {
  void *stanli = dlopen(STANLI, RTLD_NOW | RTLD_LOCAL);
  if (!stanli) return; /* then every model is refused, see below */
#define FIND(function) *(void **)&function = dlsym(stanli, "bs_" #function)
  FIND(free_error_msg);
  FIND(model_destruct);
  FIND(name);
  FIND(model_info);
  FIND(param_names);
  FIND(param_unc_names);
  FIND(param_num);
  FIND(param_unc_num);
  FIND(param_constrain);
  FIND(param_unconstrain);
  FIND(param_unconstrain_json);
  FIND(param_initialize);
  FIND(log_density);
  FIND(log_density_gradient);
  FIND(log_density_hessian);
  FIND(rng_construct);
  FIND(rng_destruct);
  FIND(set_print_callback);
  *(void **)&log_density_hvp = dlsym(stanli, "bs_log_density_hessian_vector_product");
  bs_major_version = *(int *)dlsym(stanli, "bs_major_version");
  bs_minor_version = *(int *)dlsym(stanli, "bs_minor_version");
  bs_patch_version = *(int *)dlsym(stanli, "bs_patch_version");
  FIND(model_construct);
}

/* How many copies of itself a model opens from now on: as many as there are threads that will call it. */
void shim_copies(int n) { copies_wanted = n; }

/* Calls of bs_log_density_gradient so far, of all models. */
int64_t shim_gradients(void) {
  pthread_mutex_lock(&lock);
  int64_t total = gradients_closed;
  for (model *m = models; m; m = m->next)
    for (int i = 0; i < m->n; i++) total += m->copies[i].gradients;
  pthread_mutex_unlock(&lock);
  return total;
}

/* Seconds of `n` gradients at `x`, on stanli's own function; negative if it fails there. */
double shim_seconds(const model *m, const double *x, double *score, int n) {
  struct timespec begin, end;
  double value;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < n; i++)
    if (log_density_gradient(m->copies[0].model, true, true, x, &value, score, NULL)) return -1.0;
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (end.tv_sec - begin.tv_sec) + 1e-9 * (end.tv_nsec - begin.tv_nsec);
}

/* A copy that no other thread uses, this thread's last one if it is free. */
static copy *taken(const model *m) {
  for (int i = usual < m->n ? usual : 0;; i = (i + 1) % m->n) {
    if (!__atomic_exchange_n(&m->copies[i].busy, 1, __ATOMIC_ACQUIRE)) {
      usual = i;
      return &m->copies[i];
    }
    if (i + 1 == m->n) sched_yield();
  }
}

static int given_back(copy *c, int rc) {
  __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
  return rc;
}

void bs_free_error_msg(char *message) { free_error_msg(message); }

void bs_model_destruct(model *m) {
  if (!m) return;
  pthread_mutex_lock(&lock);
  for (model **place = &models; *place; place = &(*place)->next)
    if (*place == m) {
      *place = m->next;
      break;
    }
  for (int i = 0; i < m->n; i++) gradients_closed += m->copies[i].gradients;
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < m->n; i++) model_destruct(m->copies[i].model);
  free(m->copies);
  free(m);
}

model *bs_model_construct(const char *data, unsigned int seed, char **message) {
  if (!model_construct) return NULL; /* stanli's library could not be loaded */
  model *m = calloc(1, sizeof(model));
  m->copies = aligned_alloc(_Alignof(copy), copies_wanted * sizeof(copy));
  memset(m->copies, 0, copies_wanted * sizeof(copy));
  for (; m->n < copies_wanted; m->n++)
    if (!(m->copies[m->n].model = model_construct(data, seed, message))) {
      bs_model_destruct(m);
      return NULL;
    }
  pthread_mutex_lock(&lock);
  m->next = models;
  models = m;
  pthread_mutex_unlock(&lock);
  return m;
}

const char *bs_name(const model *m) { return name(m->copies->model); }

const char *bs_model_info(const model *m) { return model_info(m->copies->model); }

const char *bs_param_names(const model *m, bool tp, bool gq) { return param_names(m->copies->model, tp, gq); }

const char *bs_param_unc_names(const model *m) { return param_unc_names(m->copies->model); }

int bs_param_num(const model *m, bool tp, bool gq) { return param_num(m->copies->model, tp, gq); }

int bs_param_unc_num(const model *m) { return param_unc_num(m->copies->model); }

int bs_param_constrain(const model *m, bool tp, bool gq, const double *x, double *values, void *rng,
                       char **message) {
  copy *c = taken(m);
  return given_back(c, param_constrain(c->model, tp, gq, x, values, rng, message));
}

int bs_param_unconstrain(const model *m, const double *values, double *x, char **message) {
  copy *c = taken(m);
  return given_back(c, param_unconstrain(c->model, values, x, message));
}

int bs_param_unconstrain_json(const model *m, const char *json, double *x, char **message) {
  copy *c = taken(m);
  return given_back(c, param_unconstrain_json(c->model, json, x, message));
}

int bs_param_initialize(const model *m, const char *json, void *rng, double radius, int tries, bool jacobian,
                        double *x, char **message) {
  copy *c = taken(m);
  return given_back(c, param_initialize(c->model, json, rng, radius, tries, jacobian, x, message));
}

int bs_log_density(const model *m, bool propto, bool jacobian, const double *x, double *value, char **message) {
  copy *c = taken(m);
  return given_back(c, log_density(c->model, propto, jacobian, x, value, message));
}

int bs_log_density_gradient(const model *m, bool propto, bool jacobian, const double *x, double *value,
                            double *score, char **message) {
  copy *c = taken(m);
  c->gradients++;
  return given_back(c, log_density_gradient(c->model, propto, jacobian, x, value, score, message));
}

int bs_log_density_hessian(const model *m, bool propto, bool jacobian, const double *x, double *value,
                           double *score, double *hessian, char **message) {
  copy *c = taken(m);
  return given_back(c, log_density_hessian(c->model, propto, jacobian, x, value, score, hessian, message));
}

int bs_log_density_hessian_vector_product(const model *m, bool propto, bool jacobian, const double *x,
                                          const double *v, double *value, double *product, char **message) {
  copy *c = taken(m);
  return given_back(c, log_density_hvp(c->model, propto, jacobian, x, v, value, product, message));
}

void *bs_rng_construct(unsigned int seed, char **message) { return rng_construct(seed, message); }

void bs_rng_destruct(void *rng) { rng_destruct(rng); }

int bs_set_print_callback(void *callback, char **message) { return set_print_callback(callback, message); }
