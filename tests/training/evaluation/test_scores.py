"""Score matrices as text: what is read to the bit, and what is refused by line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtail.models.errors import DataError
from longtail.models.files import text_files
from longtail.models.files.text_files import BadLine
from longtail.training.evaluation.scores import join_pairs, read_header, read_score_lines

NUM_LABELS = 12
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, lines: list[str], *, end: str = "\n") -> Path:
    path = folder / "some.txt"
    header = f"{len(lines)} {NUM_LABELS}"
    path.write_bytes("".join(line + end for line in [header, *lines]).encode())
    return path


def read(path: Path) -> list[list[tuple[int, float]] | BadLine]:
    return [
        item
        if isinstance(item, BadLine)
        else list(zip(item.labels.tolist(), item.scores.tolist(), strict=True))
        for item in read_score_lines(path, read_header(path))
    ]


scores = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.lists(st.dictionaries(st.integers(0, NUM_LABELS - 1), scores), min_size=1, max_size=6)


@SAME_FOLDER
@given(rows, st.sampled_from(["all.txt", "all.txt.gz"]))
def test_what_was_written_is_read_to_the_bit(tmp_path, rows, name):
    with text_files.writing(tmp_path / name) as file:
        file.write(f"{len(rows)} {NUM_LABELS}\n")
        for row in rows:
            labels, values = np.array([*row], np.int32), np.array([*row.values()], np.float32)
            file.write(join_pairs(labels, values) + "\n")
    assert read(tmp_path / name) == [list(row.items()) for row in rows]


@pytest.mark.parametrize(("said", "what"), [(3, "3 lines, 2 follow"), (1, "1 lines, 2 follow")])
def test_another_number_of_lines_than_the_header_says_is_refused(tmp_path, said, what):
    path = tmp_path / "some.txt"
    path.write_text(f"{said} 12\n2:3\nbad\n")
    with pytest.raises(DataError, match=f"the header says {what} it; is the file whole"):
        read(path)
