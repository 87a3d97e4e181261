"""Feedback of the service as a file that training reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from longtail.models.files.outputs import check_readable_file
from longtail.training.data.feedback import Feedback, read_feedback


def open_feedback(place: str | Path) -> Feedback:
    """Return the entries of a file, or of a folder that a service keeps feedback in; or none."""
    with feedback_file(place) as file:
        return read_feedback(file, place=str(place))


@contextmanager
def feedback_file(place: str | Path) -> Iterator[Path]:
    """Provide a file of the entries within the context.

    Args:
        place: A file, or a folder that a service keeps feedback in.

    Yields:
        The file itself, or an export of the folder.
    """
    if not Path(place).is_dir():
        check_readable_file(Path(place), "--feedback")
        yield Path(place)
        return
    from longtail.service.feedback.store import FeedbackStore
    from longtail.service.offline.feedback import export_feedback

    with TemporaryDirectory(prefix="longtail-") as folder:
        file = Path(folder) / "feedback.jsonl"
        with FeedbackStore(place, must_exist=True) as store:
            export_feedback(store, file)
        yield file
