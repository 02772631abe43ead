"""The command `stanadapt`: sampling and its results from a shell.

Everything but click is imported inside the commands, so that help comes at once.
"""

from .approximating import laplace, optimize, pathfinder
from .command_group import main
from .comparing import compare
from .completion import completion
from .exporting import export
from .generating import generate, prior
from .models import check_model, compile_methods, methods
from .pages import report, watch
from .results import diagnose, evidence, replay, summary
from .sampling import extend, resume, sample

__all__ = [
    "check_model",
    "compare",
    "compile_methods",
    "completion",
    "diagnose",
    "evidence",
    "export",
    "extend",
    "generate",
    "laplace",
    "main",
    "methods",
    "optimize",
    "pathfinder",
    "prior",
    "replay",
    "report",
    "resume",
    "sample",
    "summary",
    "watch",
]
