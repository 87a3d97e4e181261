"""Logging and progress bars of the offline commands."""

from __future__ import annotations

import logging

from longtail.training.runtime.progress import show_progress


def configure_logging() -> None:
    """Show warnings and progress bars; `longtail --verbose` lets our own packages log more."""
    show_progress()
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
