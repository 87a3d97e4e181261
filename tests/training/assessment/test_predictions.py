"""Rankings as files: written, read back, and refused."""

import re

import numpy as np
import pytest

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.compare import read_predictions, write_predictions

RANKING = Ranking(
    labels=np.array([[4, 0, 2], [1, NO_LABEL, NO_LABEL], [NO_LABEL] * 3]),
    scores=np.array([[0.1, 0.1, -3e-7], [2, -np.inf, -np.inf], [-np.inf] * 3], dtype=np.float32),
)


def test_a_ranking_survives_the_round_trip(tmp_path):
    write_predictions(tmp_path / "a.npz", RANKING, 5)
    found = read_predictions(tmp_path / "a.npz", 3, 5)
    assert np.array_equal(found.labels, RANKING.labels)
    assert np.array_equal(found.scores, RANKING.scores)


WRONG = {
    "got predictions for 3 documents and 6 labels; expected 3 documents and 5": {"num_labels": 6},
    "got predictions for 1 documents and 5 labels; expected 3 documents and 5": {
        "labels": [[1]], "scores": [[1.0]],
    },
    "a.npz: can't be used as a ranking (labels (3, 3), scores (2, 3))": {
        "scores": RANKING.scores[:2],
    },
    "a.npz: can't be used as a ranking (labels (3,), scores (3,))": {
        "labels": [1, 2, 3], "scores": [1.0, 2.0, 3.0],
    },
    "a.npz: can't be used as a ranking (Object arrays cannot be loaded": {"labels": [None]},
    "a.npz: can't be used as a ranking (": {"labels": ["x"]},
}  # fmt: skip


@pytest.mark.parametrize(("reason", "changed"), WRONG.items(), ids=WRONG)
def test_a_file_of_other_data_or_arrays_is_refused(reason, changed, tmp_path):
    arrays = {"labels": RANKING.labels, "scores": RANKING.scores, "num_labels": 5}
    np.savez(tmp_path / "a.npz", **(arrays | {x: np.array(y) for x, y in changed.items()}))
    with pytest.raises(DataError, match=re.escape(reason)):
        read_predictions(tmp_path / "a.npz", 3, 5)


@pytest.mark.parametrize("content", [b"", b"3 5\n1:1\n", b"PK\x03\x04", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_none_is_refused(content, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: can't be used as a ranking"):
        read_predictions(tmp_path / "a.npz", 3, 5)


def test_a_file_that_was_cut_off_is_refused_at_each_byte(tmp_path):
    path = tmp_path / "a.npz"
    write_predictions(path, RANKING, 5)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="can't be used as a ranking"):
            read_predictions(path, 3, 5)
