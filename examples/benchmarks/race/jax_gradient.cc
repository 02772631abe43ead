// A Stan model's log density and gradient as a custom call of XLA, so that blackjax calls C and not Python.

#include <cstdint>
#include <limits>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

using LogDensityGradient = int (*)(void *, bool, bool, const double *, double *, double *, char **);

// `function` is the address of bs_log_density_gradient, `model` the model's.
static ffi::Error Evaluate(int64_t function, int64_t model, ffi::Buffer<ffi::F64> x,
                           ffi::ResultBuffer<ffi::F64> value, ffi::ResultBuffer<ffi::F64> score) {
  auto gradient = reinterpret_cast<LogDensityGradient>(function);
  double *entries = score->typed_data();
  if (gradient(reinterpret_cast<void *>(model), true, true, x.typed_data(), value->typed_data(), entries,
               nullptr)) {  // outside of the support
    *value->typed_data() = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < score->element_count(); i++) entries[i] = 0.0;
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(stan_gradient, Evaluate,
                              ffi::Ffi::Bind()
                                  .Attr<int64_t>("function")
                                  .Attr<int64_t>("model")
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>());
