"""Sphinx settings. Build with `sphinx-build -W docs OUTDIR`: a warning is an error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))

project = "aiolimit"
author = "The aiolimit authors"
copyright = author
release = version = _pyproject["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = False  # annotations name private types that have no page of their own

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings write code between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"aiolimit {release}"


def setup(app: Sphinx) -> None:
    """Connect what the settings cannot say."""
    app.connect("autodoc-process-docstring", attributes_are_prose, priority=400)  # before napoleon's 500


def attributes_are_prose(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon for the type: our attributes are described in sentences."""
    del app, name, obj, options
    if what == "attribute" and lines:
        lines[0] = f": {lines[0]}"  # an empty type, which is not shown
