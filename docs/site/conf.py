"""Settings of Sphinx for the site of the documents; see `build.py` beside it."""

from __future__ import annotations

project = "Longtail"
author = "The Longtail authors"
copyright = ""  # noqa: A001  # the name that Sphinx has for it
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    # Made by scikit-learn, with links into its own documents.
    "exclude-members": ", ".join(
        f"set_{name}_request"
        for name in ("decision_function", "fit", "predict", "predict_proba", "score")
    ),
}
autoclass_content = "both"
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
html_theme = "furo"
html_title = "Longtail"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
