"""Reports: a page for each result."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import check
from ..diagnostics.approximation import describe_approximation, is_approximation, name_content
from ..diagnostics.convergence import FEWEST
from ..diagnostics.findings import diagnose
from ..diagnostics.statistics import select
from ..diagnostics.table import summary
from ..errors import OutputError
from ..result.container import attributes, datasets
from .facts import data_rows, program, quantity_rows, run_facts, settings_rows, version_facts
from .figures import Worst, chain_rows, key_figures, summary_rows
from .page import Picture, render
from .pictures import Failure, draw_pictures
from .reproduce import lines
from .thinning import thin
from .verdict import CARE, SERIOUS, UNFINISHED, Judged, judge

if TYPE_CHECKING:
    from ..result.container import InferenceData

_HEIGHT = 720  # of the frame in a notebook, in pixels
_LEVELS = {SERIOUS: 0, CARE: 1}


class Report:
    """A page on a result, which a notebook shows by itself.

    Attributes
    ----------
    html : str
        The page, as one file that loads nothing from anywhere.
    title : str
        Its title.
    verdict : str
        Whether the draws can be used, in one sentence.
    """

    def __init__(self, page: str, title: str, verdict: str) -> None:
        self.html, self.title, self.verdict = page, title, verdict

    def __repr__(self) -> str:
        return f"Report({self.title!r}, {len(self.html) / 1e6:.1f} MB): {self.verdict}"

    def _repr_html_(self) -> str:
        """Put the page into a frame, so that its styles and scripts do not act on the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="{html.escape(self.title)}" '
            'sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8888;border-radius:8px"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file. It replaces an older file when it is complete.

        Parameters
        ----------
        path
            The file, such as "fit.html".

        Returns
        -------
        pathlib.Path
            The path of the file.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        target = check.output(path, overwrite=True)
        unfinished = check.partial_path(target)
        try:
            unfinished.write_text(self.html, encoding="utf-8")
            unfinished.replace(target)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {check.one_line(error)}") from error
        finally:
            unfinished.unlink(missing_ok=True)
        return target


def make(idata: InferenceData, title: str | None, *, file: str = "", progress: bool = False) -> Report:
    """Make the report of a result; see `stanadapt.report`.

    The title is the model's name or, if the result does not have that, the name of the `file` that it comes
    from. With `progress`, steps that take long report it on stderr.
    """
    content = contents(idata, progress=progress)
    shown = check.printable(title or content["model"] or file or content["run_name"])
    page = render("report.html", title=f"{shown}: report", heading=shown, **content)
    return Report(page, shown, content["verdict"].sentence)


def contents(idata: InferenceData, *, is_running: bool = False, progress: bool = False) -> dict[str, Any]:
    """Collect what the template `contents.html` shows of a result; the run may still be going on.

    Raises
    ------
    ArgumentError
        `idata` is not a result, or it has no variables of numbers.
    """
    idata, step = thin(idata)
    groups = datasets(idata)
    posterior = select(idata, None)
    attrs = posterior.attrs | attributes(idata)
    chains = posterior.sizes["chain"]
    findings = diagnose(idata, progress=progress)
    if is_running:
        findings = [each for each in findings if each.kind not in UNFINISHED]
    judged = [Judged.of(finding) for finding in findings]
    pictures: list[Picture | Failure] = []
    table = keys = None
    worst = ""
    if posterior.sizes["draw"]:
        frame = summary(idata)
        known = Worst.of(frame)
        if is_approximation(attrs):
            worst = describe_approximation(groups, attrs)
        elif posterior.sizes["draw"] >= FEWEST:
            worst = known.clause(chains)
        keys = key_figures(groups, attrs, known)
        table = summary_rows(frame, posterior, attrs)
        pictures = list(draw_pictures(idata))
    there = {each.id for each in pictures}
    return {
        "model": str(attrs.get("model_name", "")),
        "run_name": _run_name(attrs),
        "step": step,
        "verdict": judge(findings, worst, is_running=is_running, what=name_content(attrs)),
        "findings": [
            each._replace(picture=_picture_of_finding(each.picture, there))
            for each in sorted(judged, key=lambda each: _LEVELS[each.level])
        ],
        "keys": keys or [],
        "summary": table,
        "chain_table": chain_rows(groups),
        "all_pictures": pictures,
        "pictures": [each for each in pictures if isinstance(each, Picture)],
        "program": program(attrs),
        "data": data_rows(groups),
        "quantities": quantity_rows(groups),
        "run": run_facts(groups, attrs),
        "settings": settings_rows(attrs),
        "versions": version_facts(attrs),
        "lines": lines(groups, attrs),
    }


def _picture_of_finding(wanted: str, there: set[str]) -> str:
    """Return the picture that a finding links to: its own, else the chains, else none."""
    return next((each for each in (wanted, "chains") if wanted and each in there), "")


def _run_name(attrs: dict[str, Any]) -> str:
    """Name a run by its method and seed, or by the library that made the draws."""
    if "method" in attrs and "seed" in attrs:
        return f"{attrs['method']}, seed {attrs['seed']}"
    return str(attrs.get("inference_library", "Posterior"))
