"""What stanadapt raises and warns. Every message names what was wrong, its value, and what is allowed."""


class StanAdaptError(Exception):
    """Base of every error that stanadapt raises on purpose."""


class ArgumentError(StanAdaptError, ValueError):
    """An argument or a setting has a value that is not allowed."""


class ModelError(StanAdaptError, RuntimeError):
    """The Stan program cannot be found, compiled or opened."""


class DataError(StanAdaptError, ValueError):
    """The data do not fit the Stan program, or cannot be written as JSON."""


class InitializationError(StanAdaptError, RuntimeError):
    """No starting point with a finite log density and gradient was found."""


class EvaluationError(StanAdaptError, RuntimeError):
    """The log density has no finite value or gradient at a point that the user asked about."""


class ChainError(StanAdaptError, RuntimeError):
    """A chain died: its worker process crashed, or it needs more memory than there is."""


class OutputError(StanAdaptError, OSError):
    """The result cannot be written where the user wants it."""


class StanAdaptWarning(UserWarning):
    """Something the user should know about a run that went on all the same."""
