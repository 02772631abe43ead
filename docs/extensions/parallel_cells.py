"""Runs the cells of pages that have changed, as many pages at once as there are cores, before pages are read.

Sphinx reads pages one after another, and myst_nb runs the cells of a page when it is read. Here the outputs
are put into myst_nb's cache before that, by one process: those of `sphinx -j` would all create its database.
A page that fails has no outputs in the cache, so that myst_nb runs it again and says what failed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from myst_nb.core.config import NbParserConfig
from myst_nb.core.read import create_nb_reader
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from stanadapt.check import available_cores


def run_cells(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Run the pages among `docnames` that have cells and no outputs in the cache, and put these there."""
    config = env.mystnb_config
    cache = get_cache(config.execution_cache_path)
    pages = {}
    for name in docnames:
        path = str(env.doc2path(name))
        text = Path(path).read_text(encoding="utf-8")
        reader = create_nb_reader(path, env.myst_config, config, text)
        if reader is not None and not _has_outputs(cache, notebook := reader.read(text)):
            pages[path] = notebook
    with ThreadPoolExecutor(available_cores()) as threads:
        results = threads.map(partial(_run, config=config), pages.values())
        for path, result in zip(pages, results, strict=True):
            if result.err is None:
                bundle = CacheBundleIn(result.nb, path, data={"execution_seconds": result.time})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _has_outputs(cache: JupyterCacheAbstract, notebook: NotebookNode) -> bool:
    try:
        cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    return True


def _run(notebook: NotebookNode, config: NbParserConfig) -> ExecutionResult:
    """As myst_nb does, in a folder of its own."""
    with TemporaryDirectory() as folder:
        return single_nb_execution(
            notebook, cwd=folder, timeout=config.execution_timeout, allow_errors=config.execution_allow_errors
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-before-read-docs", run_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
