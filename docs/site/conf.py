# SPDX-License-Identifier: Apache-2.0
"""conf.py - Sphinx's configuration of the site.  tools/docs.sh builds it from the
pages that stage.py puts into build/docs/source."""

import os
import re
import sys

from sphinx.ext.autodoc._dynamic._mock import MockFinder, _MockObject

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "docs", "site")]

import c_api

with open(os.path.join(ROOT, "include", "nibblas.h"), encoding="utf-8") as file:
    release = ".".join(re.findall(r"^#define NIB_VERSION_\w+ (\d+)", file.read(), re.M))

project = "nibblas"
version = release
copyright = "the authors of nibblas, Apache-2.0"  # pylint: disable=redefined-builtin
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = False

html_theme = "furo"
html_title = f"nibblas {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

# Headings get the anchors that a code host gives them.
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
# A fence without a language is output or a diagram.
highlight_language = "none"

# Packages that the modules import and that Sphinx's environment lacks: stand-ins whose
# classes can be inherited from and are part of annotations (X | None).
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: self
_MockObject.__setitem__ = lambda self, key, value: None
sys.meta_path.insert(0, MockFinder(["torch", "transformers", "vllm", "safetensors",
                                    "accelerate"]))
import transformers

transformers.__version__ = "5.12"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 60


def docstring(_app, _what, _name, _object, _options, lines):
    """Docstrings are prose like the header's comments."""
    lines[:] = c_api.prose_rst(list(lines), {}) + [""]


def setup(app):
    app.connect("autodoc-process-docstring", docstring)
