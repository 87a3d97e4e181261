"""What the pictures show, read back from the figure."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import Ranking, top_of_scores
from longtail.training.evaluation.plots import draw_by_frequency, write_figure

COUNTS = np.repeat([500, 20, 3, 1, 0], [2, 10, 18, 20, 20])
TRUTH = csr_array((np.random.default_rng(1).random((30, 70)) < 0.1).astype(np.float32))


def ranking_of(seed: int, num_documents: int = 30) -> Ranking:
    scores = np.random.default_rng(seed).random((num_documents, 70)).astype(np.float32)
    return top_of_scores(scores + TRUTH.toarray()[:num_documents], 10)


@pytest.fixture
def figure():
    return draw_by_frequency({"retrieval": ranking_of(1), "sparse": ranking_of(2)}, TRUTH, COUNTS)


@pytest.mark.parametrize(("name", "magic"), [("f.png", b"\x89PNG"), ("f.svg", b"<?xml")])
def test_figures_are_written_as_png_and_svg(figure, tmp_path, name, magic):
    write_figure(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
