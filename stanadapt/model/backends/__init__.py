"""Where log densities come from: stanli, BridgeStan, or Python callables."""

from ...cache import import_with_home

import_with_home("bridgestan")  # here, before other modules import it in the plain way
