"""Rankings in the score-matrix form: written, read back, and refused."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.compare import (
    read_predictions,
    write_predictions,
)

RANKING = Ranking(
    labels=np.array([[4, 0, 2], [1, NO_LABEL, NO_LABEL], [NO_LABEL] * 3]),
    scores=np.array([[0.1, 0.1, -3e-7], [2, -np.inf, -np.inf], [-np.inf] * 3], dtype=np.float32),
)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_equal(found: Ranking, expected: Ranking) -> None:
    assert np.array_equal(found.labels, expected.labels)
    assert np.array_equal(found.scores, expected.scores)


def test_a_ranking_is_written_best_first_with_the_sizes_before_it(tmp_path):
    write_predictions(tmp_path / "a.txt", RANKING, 5)
    lines = (tmp_path / "a.txt").read_text().split("\n")
    assert lines == ["3 5", "4:0.100000001 0:0.100000001 2:-3.00000011e-07", "1:2", "", ""]


scores = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=6)


@pytest.mark.slow
@SAME_FOLDER
@given(st.lists(scores, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_any_ranking_survives_the_round_trip(tmp_path, rows, random):
    width = max(map(len, rows))
    labels = np.full((len(rows), width), NO_LABEL)
    values = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, found in enumerate(rows):
        labels[row, : len(found)] = random.sample(range(9), len(found))
        values[row, : len(found)] = sorted(found, reverse=True)
    write_predictions(tmp_path / "a.txt", Ranking(labels=labels, scores=values), 9)
    read = read_predictions(tmp_path / "a.txt", len(rows), 9)
    assert_equal(read, Ranking(labels=labels, scores=values))


def test_a_score_matrix_in_any_order_is_ranked_by_its_scores(tmp_path):
    (tmp_path / "a.txt").write_text("2 9\n1:0.5 2:2 7:0.5 8:1\n3:1e-3\n")
    found = read_predictions(tmp_path / "a.txt", 2, 9)
    assert found.labels.tolist() == [[2, 8, 1, 7], [3, NO_LABEL, NO_LABEL, NO_LABEL]]


WRONG = {
    "got predictions for 1 documents and 5 labels; expected 2 documents and 5": "1 5\n1:1\n",
    "got predictions for 2 documents and 6 labels; expected 2 documents and 5": "2 6\n1:1\n1:1\n",
    "line 1: got '2 5 5', expected the number of documents and that of labels": "2 5 5\n1:1\n1:1\n",
    "the header says 2 lines, 1 follow it": "2 5\n1:1\n",
    "1 lines can't be used; write the file again\n  a.txt, line 3: label 1 occurs twice": (
        "2 5\n1:1\n1:1 2:1 1:2\n"
    ),
    "a.txt, line 2: label '5' of '5:1': expected 0 to 4": "2 5\n5:1\n\n",
    "a.txt, line 2: score 'nan' of label 0 is no decimal number": "2 5\n0:nan\n\n",
    "a.txt, line 2: '3' is no pair; expected label:score": "2 5\n3 1:0.5\n\n",
}


@pytest.mark.parametrize(("reason", "content"), WRONG.items(), ids=WRONG)
def test_a_file_of_other_data_or_with_broken_lines_is_refused(reason, content, tmp_path):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(DataError, match=re.escape(reason)):
        read_predictions(tmp_path / "a.txt", 2, 5)
