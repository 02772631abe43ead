import ctypes
from pathlib import Path

import numpy as np

from stanadapt.model.backends.own import Addresses, OwnModel


class Gaussian(OwnModel):
    backend, library, dim = "gaussian", "gaussian.c 1.0", 3
    thread_safe = True  # the C functions may run in several threads at a time

    def __init__(self, path):
        self.path, self.code = str(path), ctypes.CDLL(str(path))
        self.code.bs_model_construct.restype = ctypes.c_void_p
        self.context = self.code.bs_model_construct(b"{}", 0, None)

    def __reduce__(self):  # addresses die with the process: another one opens the library again
        return Gaussian, (self.path,)

    def addresses(self):
        functions = self.code.bs_log_density, self.code.bs_log_density_gradient
        return Addresses(*(ctypes.cast(each, ctypes.c_void_p).value for each in functions), self.context)

    def unconstrained_names(self):
        return ["x.1", "x.2", "log_sigma"]

    def names(self, *, transformed, generated):
        return ["x.1", "x.2", "sigma", *["total"] * transformed, *["u"] * generated]

    def constrain(self, x, values, iterations, seed):
        values[:, :2], values[:, 2] = x[:, :2], np.exp(x[:, 2])
        values[:, 3] = values[:, :3].sum(axis=1)
        values[:, 4] = [np.random.default_rng([seed, i]).uniform() for i in iterations]

    def unconstrain_flat(self, values):
        if values[2] <= 0.0:
            raise RuntimeError("sigma is not positive")
        return np.array([values[0], values[1], np.log(values[2])])

    def identity(self):
        return Path(self.path).read_bytes()


class Library:
    def __init__(self, path):
        self.path = path


def adopt(model, data):
    """The model of a `Library`; of a path only where backend="gaussian" sends it here."""
    if isinstance(model, Library):
        return Gaussian(model.path), dict(data or {})
    return (Gaussian(model), dict(data or {})) if str(model).endswith(".so") else None
