"""What a user gave for a program or for data: the path of a file, or what such a file would hold."""

from __future__ import annotations

import os
from pathlib import Path


class Contents(str):
    """The text of a program or of data itself, which is never taken for the path of a file.

    Texts that this package has read from a file, or that a store of somebody else holds, are of this type.
    """

    __slots__ = ()


def is_path(given: str | os.PathLike[str], endings: tuple[str, ...], *, looks_like_contents: bool) -> bool:
    """Whether a model or data are the path of a file.

    A text is one if it ends like the name of such a file, if it does not look like the contents of one, or
    if there is a file of that name.
    """
    if not isinstance(given, str):
        return True
    if isinstance(given, Contents):
        return False
    if given.endswith(endings) or not looks_like_contents:
        return True
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # longer than a name can be, or with a NUL
        return False
