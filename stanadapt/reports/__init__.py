"""Pages of HTML about results. No other room has templates.

The room and the function `stanadapt.report` have the same name, and the one that is imported last takes it.
So the package imports this file when it starts, and the function imports what it needs when it is called.
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
    """Make a page that says whether a result can be trusted, and why, and what was run.

    The page has the verdict in a sentence; the findings, with advice; a table of all quantities, which
    readers sort and search; pictures of the chains, of the adaptation and of effective sample sizes; the
    program and the shapes of its data; settings and versions; and the lines of code that draw the same again.
    It is one file of at most 5 MB, which loads nothing from anywhere. A notebook shows it as it is.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema. The page leaves out
        what the result lacks.
    out
        A file to write the page to, such as "fit.html"; it replaces an older one.
    title
        What the page is called; by default the model's name, or the method and the seed if it has none.

    Returns
    -------
    Report
        It holds the page as `html`; `save(path)` writes it.

    Raises
    ------
    ArgumentError
        `idata` is not a result, or it has no draws of numbers.
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
        raise check.refusal("title", title, "a text")
    if out is not None:
        check.output(out, overwrite=True)
    made = make(idata, title)
    if out is not None:
        made.save(out)
    return made
