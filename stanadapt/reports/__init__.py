"""Pages of results: the only room with templates and HTML.

The room and the function `stanadapt.report` have the same name, and whichever is imported last would take it.
So the package imports this file at its start, and this file imports nothing before it is called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..result.container import InferenceData
    from .document import Report


def report(
    idata: InferenceData, out: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> Report:
    """A page on a result: whether to trust it and why, and what was run.

    It has the verdict in a sentence, findings with what to do about them, a table of all quantities that can
    be sorted and searched, pictures of chains, of what adaptation did and of effective sample sizes, the
    program with its data's shapes, settings, versions and the lines that draw the same again. It is one file
    that loads nothing from anywhere, of at most 5 MB. In a notebook it shows itself.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema: what is not there is
        left out.
    out
        A file to write the page to, such as "fit.html"; an older one is replaced.
    title
        What the page is called; by default the method and the seed.

    Returns
    -------
    Report
        With the page as `html`, and `save(path)`.

    Raises
    ------
    ArgumentError
        `idata` is no result, or has no draws of numbers.
    OutputError
        The file cannot be written.

    Examples
    --------
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
    >>> stanadapt.report(idata, "eight_schools.html")
    """
    from .. import check
    from .document import make

    if title is not None and not isinstance(title, str):
        raise check.refused("title", title, "a text")
    if out is not None:
        check.output(out, overwrite=True)
    made = make(idata, title)
    if out is not None:
        made.save(out)
    return made
