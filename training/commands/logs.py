"""Logging of the offline commands."""

from __future__ import annotations

import logging


def configure_logging(verbose: bool) -> None:
    """Log to stderr; verbose concerns our own packages, not the libraries."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("longtail").setLevel(logging.INFO if verbose else logging.WARNING)
