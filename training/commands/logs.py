"""Logging of the offline commands."""

from __future__ import annotations

import logging


def configure_logging() -> None:
    """Log warnings to stderr; `longtail --verbose` lets our own packages log more."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
