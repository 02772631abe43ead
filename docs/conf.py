"""The site: `make docs` builds it into docs/_build, without the network."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "extensions"))

import stanadapt  # noqa: E402

project = "stanadapt"
author = "The stanadapt developers"
project_copyright = f"2026, {author}"
version = release = stanadapt.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "command_pages",
    "method_pages",
    "parallel_cells",
    "public_names",
    "race_picture",
]
smartquotes = False  # `--json` and "ess 400" in docstrings are for the keyboard
templates_path = ["_templates"]
exclude_patterns = ["_build", "**/notes/*", "**/tables/*"]
default_role = "public"
pygments_style = "a11y-high-contrast-light"

# Pages in MyST. Notebooks are pages with code cells, which run while the site is built; one that fails ends
# the build. What they gave is kept until a page or a source of the package changes.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
PACKAGE = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted((ROOT / "stanadapt").rglob("*.py")))
).hexdigest()[:16]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "cells" / PACKAGE)
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 1200  # seconds a cell, on a busy machine that has to compile all kernels first
nb_execution_show_tb = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # nothing is loaded from elsewhere

# Cells find the command `stanadapt` and the models; what they draw reads on light and dark pages.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
os.environ["STANADAPT_MODELS"] = str(ROOT / "models")
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")
os.environ["COLUMNS"] = "100"

# A profile of their own, without what the user's would run first.
PROFILE = HERE / "_build" / "ipython" / "profile_default" / "ipython_kernel_config.py"
PROFILE.parent.mkdir(parents=True, exist_ok=True)
PROFILE.write_text('c.IPKernelApp.log_level = "ERROR"\n', encoding="utf-8")
os.environ["IPYTHONDIR"] = str(PROFILE.parents[1])

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_use_param = False  # parameters that share a description have it once
napoleon_custom_sections = [  # further parameters of a function that has many
    ("How long", "params_style"),
    ("Where it goes", "params_style"),
    ("How results are labelled", "params_style"),
]
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88

# References within the package are to resolve. Those to other packages cannot without the network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!stanadapt\b).*")]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "stanadapt"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_favicon = "_static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "stanadapt", "image_light": "_static/icon.svg", "image_dark": "_static/icon.svg"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
}
WITHOUT_SIDEBAR = ("index", "start", "choose", "changelog", "contributing", "vision", "benchmarks", "papers")
html_sidebars: dict[str, list[str]] = {name: [] for name in WITHOUT_SIDEBAR}
