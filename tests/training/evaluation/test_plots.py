"""What the pictures show, read back from the figure."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.sparse import csr_array

from longtail.models.errors import ConfigError, DataError
from longtail.models.ranking.top_k import Ranking, top_of_scores
from longtail.training.evaluation.figures import write_figure
from longtail.training.evaluation.metrics import join_truth, label_f1_at, recall_at
from longtail.training.evaluation.plots import draw_by_frequency, macro_f1_by_rank

COUNTS = np.repeat([500, 20, 3, 1, 0], [2, 10, 18, 20, 20])
TRUTH = csr_array((np.random.default_rng(1).random((30, 70)) < 0.1).astype(np.float32))


def ranking_of(seed: int, num_documents: int = 30) -> Ranking:
    scores = np.random.default_rng(seed).random((num_documents, 70)).astype(np.float32)
    return top_of_scores(scores + TRUTH.toarray()[:num_documents], 10)


@pytest.fixture
def figure() -> Figure:
    return draw_by_frequency({"retrieval": ranking_of(1), "sparse": ranking_of(2)}, TRUTH, COUNTS)


def test_bins_average_f1_from_rare_to_common():
    ranks, f1 = macro_f1_by_rank(
        np.array([0.9, 0.1, 0.3, 0.5]), np.array([50, 0, 2, 2]), labels_per_bin=2
    )
    assert ranks.tolist() == [1.5, 3.5]
    assert f1 == pytest.approx([(0.1 + 0.3) / 2, (0.5 + 0.9) / 2])


def test_the_upper_panel_has_a_line_in_percent_for_each_scorer(figure):
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    _, f1 = macro_f1_by_rank(label_f1_at(join_truth(ranking_of(2).labels, TRUTH), 5), COUNTS)
    assert "retrieval" in lines
    assert np.asarray(lines["sparse"].get_ydata()) == pytest.approx(100 * f1)


def test_the_lower_panel_has_recall_at_10_of_each_bin(figure):
    zero_shot, *others = figure.axes[1].containers[0]
    judged = join_truth(ranking_of(1).labels, TRUTH).restricted_to(COUNTS == 0)
    assert zero_shot.get_height() == pytest.approx(100 * recall_at(judged, 10))
    assert len(others) == 4


def test_a_model_of_all_scorers_and_both_baselines_has_a_colour_for_each():
    """On commit e37f807 there were seven: `label names` had the colour of `retrieval`."""
    names = ("retrieval", "classifier", "hybrid", "linear", "linear, uncorrected", "sparse")
    names += ("ensemble", "30-NN tf-idf", "label names")
    drawn = draw_by_frequency({x: ranking_of(i) for i, x in enumerate(names)}, TRUTH, COUNTS)
    lines = [line for line in drawn.axes[0].get_lines() if line.get_label() in names]
    assert len({line.get_color() for line in lines}) == len(names)
    bars = [
        container[0].get_facecolor() for container in drawn.axes[2].containers if len(container)
    ]
    assert len(set(bars)) == len(names)


@pytest.mark.parametrize(("name", "magic"), [("f.png", b"\x89PNG"), ("f.svg", b"<?xml")])
def test_figures_are_written_as_png_and_svg(figure, tmp_path, name, magic):
    write_figure(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_other_suffixes_are_refused(figure, tmp_path):
    with pytest.raises(ConfigError, match=r"'f.pdf': expected a name that ends in .png or .svg"):
        write_figure(figure, tmp_path / "f.pdf")


def test_nothing_to_draw_is_refused():
    with pytest.raises(DataError, match="got no rankings"):
        draw_by_frequency({}, TRUTH, COUNTS)
    with pytest.raises(DataError, match="labels_per_bin=0"):
        macro_f1_by_rank(np.ones(2), np.ones(2, dtype=np.int64), labels_per_bin=0)
