"""How Sphinx makes the site of these pages: `make docs` writes it to build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
# As an editable install has it, so that a checkout suffices; the last is for the extension beside this file.
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "overlay"), str(HERE.parent / "security"), str(HERE)]

from iris_py import __version__  # noqa: E402

project = "Iris"
author = "the authors of Iris"
copyright = "2026, the authors of Iris"  # noqa: A001
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_links"]
nitpicky = True  # a reference that leads nowhere is an error, as every other warning: see the Makefile

myst_heading_anchors = 4  # the anchors that GitHub makes, so that one link works in both places

maximum_signature_line_length = 100  # characters; longer ones have a parameter in each line
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Iris {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

linkcheck_timeout = 20  # seconds
linkcheck_retries = 2
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)", r"https?://[^/]*example\.(org|com|net)"]
