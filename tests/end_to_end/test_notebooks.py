"""Progress in notebooks that a kernel runs: a bar of widgets, a bar of text, or lines."""

from __future__ import annotations

import os
from typing import Any

import nbclient
import nbformat
import pytest

STATE, VIEW = "application/vnd.jupyter.widget-state+json", "application/vnd.jupyter.widget-view+json"
SPACE = "\u2007"  # tqdm's, as wide as a digit
RUN = """
import warnings
import stanadapt

def run(seed, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, lambda x: -x)
        return stanadapt.sample(target, method="rwm", chains=2, warmup=100, draws=300, seed=seed, **keywords)

"""


INTERRUPTED = """
import os, signal
calls = 0

def density(x):
    global calls
    calls += 1
    if calls == 20_000:
        os.kill(os.getpid(), signal.SIGINT)
    return -0.5 * float(x @ x)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    endless = dict(method="rwm", chains=1, workers=1, warmup=100, draws=10**8, thin=100, progress=False)
    idata = stanadapt.sample(stanadapt.Target.from_python(density, 2, lambda x: -x), seed=1, **endless)
"""
AFTERWARDS = """
posterior = idata["posterior"]
after = run(5, progress=False)["posterior"]
print(posterior.attrs["interrupted"], posterior.sizes["draw"] > 10, after.sizes["draw"])
"""


def execute(*cells: str) -> Any:
    """The notebook of these cells, after a kernel of this Python has run them."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (RUN, *cells)])
    os.environ.pop("VSCODE_PID", None)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", store_widget_state=True)
    client.execute()
    return notebook


def text(cell: Any) -> str:
    """What a cell wrote to stderr."""
    return "".join(each["text"] for each in cell["outputs"] if each.get("name") == "stderr")


def views(cell: Any) -> list[str]:
    """The widgets that a cell shows."""
    held = [each["data"][VIEW]["model_id"] for each in cell["outputs"] if VIEW in each.get("data", {})]
    return [str(each) for each in held]


@pytest.fixture(scope="module")
def notebook() -> Any:
    return execute(
        "idata = run(1);",
        "pairs = [(key, None) for key in 'abc']\n"
        "program = 'parameters { real x; } model { x ~ std_normal(); }'\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    fits = dict(stanadapt.sample_many(program, pairs, method='rwm', draws=50, seed=1, workers=1))",
        "import os\nos.environ['VSCODE_PID'] = '1'\nidata = run(2);\ndel os.environ['VSCODE_PID']",
        "__vsc_ipynb_file__ = '/home/user/fit.ipynb'\nidata = run(3);\ndel __vsc_ipynb_file__",
        "idata = run(4, progress=False);",
        # The first figure of a kernel loads the notebook's backend, which must still show the later ones.
        "stanadapt.plot_chains(idata);",
        "stanadapt.plot_ess(idata);",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "print(stanadapt.__file__)",
        INTERRUPTED,
        AFTERWARDS,
    )


def bar(notebook: Any, cell: Any) -> tuple[dict[str, Any], list[str]]:
    """The state of the bar that a cell shows, and the texts beside it."""
    state = {name: model["state"] for name, model in notebook["metadata"]["widgets"][STATE]["state"].items()}
    (box,) = views(cell)
    children = [state[name.removeprefix("IPY_MODEL_")] for name in state[box]["children"]]
    (progress,) = [child for child in children if child["_model_name"] == "FloatProgressModel"]
    texts = [child["value"] for child in children if child["_model_name"] == "HTMLModel"]
    return progress, [each.replace(SPACE, " ").strip() for each in texts]


def test_a_bar_of_widgets(notebook: Any) -> None:
    cell = notebook["cells"][1]
    progress, (left, right) = bar(notebook, cell)
    assert progress["value"] == progress["max"] == 800
    assert progress["bar_style"] == "success"
    assert left == "rwm 100%"
    assert right.startswith("800/800, 00:00 left, sampling, accept 0.")
    assert ", step " in right
    assert "%" not in text(cell)


def test_a_bar_of_widgets_over_fits(notebook: Any) -> None:
    cell = notebook["cells"][2]
    progress, (left, right) = bar(notebook, cell)
    assert progress["value"] == progress["max"] == 3
    assert progress["bar_style"] == "success"
    assert left.endswith("100%")
    assert right == "3/3, 00:00 left"


@pytest.mark.parametrize("place", [3, 4])
def test_lines_in_vs_code(place: int, notebook: Any) -> None:
    cell = notebook["cells"][place]
    lines = text(cell).splitlines()
    assert views(cell) == []
    assert "\r" not in text(cell)
    assert lines[-1].startswith("rwm: 100%, 800/800 iterations, 0:00:0")


def test_silence(notebook: Any) -> None:
    assert notebook["cells"][5]["outputs"] == []


def test_a_bar_of_text_without_ipywidgets() -> None:
    cell = execute("import sys\nsys.modules['ipywidgets'] = None\nidata = run(1);")["cells"][1]
    assert views(cell) == []
    assert "rwm 100%|" in text(cell)
    assert "IProgress" not in text(cell)  # tqdm's advice to install it


def test_a_kernel_runs_this_package(notebook: Any) -> None:
    """Or the other tests would say nothing of the code beside them."""
    import stanadapt

    assert notebook["cells"][9]["outputs"][0]["text"].strip() == stanadapt.__file__


def test_an_interrupt_of_a_cell_gives_the_draws_so_far(notebook: Any) -> None:
    """Jupyter interrupts a cell with SIGINT, here at the 20,000th evaluation. The kernel goes on.

    One chain: the clock says how two of them share the evaluations, and draws are cut to the shorter one.
    """
    assert notebook["cells"][11]["outputs"][0]["text"].split() == ["1", "True", "300"]


def test_every_cell_shows_its_picture(notebook: Any) -> None:
    cells = notebook["cells"][6:9]
    pictures = [sum("image/png" in each.get("data", {}) for each in cell["outputs"]) for cell in cells]
    assert pictures == [1, 1, 1]
