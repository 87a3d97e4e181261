"""Weights against their formulas, and the implicit losses of Table 2 that they lead to."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.distributions import (
    AllLabels,
    Frequency,
    Shared,
    Uniform,
    WithinBatch,
)
from longtail.training.learning.sampling import (
    Negatives,
    Pairs,
    TargetMargin,
    adaptive,
    constant,
    equalised,
    importance,
    logit_adjusted,
    make_pairs,
    pairs_at,
    relative,
)
from longtail.training.losses import softmax_loss
from research.experiments.bow_models import one_label_each, pair_batches

COUNTS = np.array([8, 4, 2, 1, 1])
PRIOR = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625])
L = 5
WEIGHTS = {
    "constant": constant,
    "importance": importance,
    "relative": relative,
    "tail": TargetMargin(PRIOR.log(), logit_adjusted),
    "equalised": TargetMargin(PRIOR.log(), equalised),
    "adaptive": TargetMargin(PRIOR.log(), adaptive),
}


def pairs_of(labels: list[int], *, is_excluded: bool = True) -> Pairs:
    positives = torch.tensor(labels)
    excluded = positives.unsqueeze(1)[:, : int(is_excluded)]
    return Pairs(torch.arange(len(labels)), positives, excluded)


def draw(name: str, pairs: Pairs, m: int = 6) -> Negatives:
    distribution = {
        "uniform": Uniform(L, m),
        "frequency": Frequency.of(COUNTS, 1.0, m, "cpu"),
        "shared": Shared(Frequency.of(COUNTS, 1.0, m, "cpu")),
        "within_batch": WithinBatch(PRIOR.log()),
        "all": AllLabels(L),
    }[name]
    return distribution.draw(pairs, torch.Generator().manual_seed(1))


def expected(name: str, m: int, q: float, q_y: float, pi_y: float, pi: float) -> float:
    return {
        "constant": 1 / m,
        "importance": 1 / (m * q),
        "relative": q_y / q,
        "tail": pi / (m * q * pi_y),
        "equalised": pi / (m * q),
        "adaptive": pi_y**-0.25 / (m * q),
    }[name]


@pytest.mark.parametrize("q_name", ["uniform", "frequency", "shared", "within_batch", "all"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_equal_their_formulas(name, q_name):
    pairs = pairs_of([0, 1, 1, 4])
    negatives = draw(q_name, pairs)
    log_w = WEIGHTS[name](negatives)
    base = torch.full((L,), 1 / L) if q_name in ("uniform", "all") else PRIOR
    for row, y in enumerate(pairs.labels.tolist()):
        labels = negatives.labels.expand_as(log_w)[row]
        m = int(negatives.is_drawn[row].sum())
        for place, label in enumerate(labels.tolist()):
            if not negatives.is_drawn[row, place]:
                assert log_w[row, place] == -math.inf
                continue
            q = float(base[label] / (1 - base[y]))
            w = expected(name, m, q, float(base[y]), float(PRIOR[y]), float(PRIOR[label]))
            assert float(log_w[row, place].exp()) == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("q_name", ["uniform", "frequency"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_table_2_the_margins_that_sampling_implies(name, q_name):
    """rho = m q w. Constant weights have pi_y' / (1 - pi_y): the paper leaves the divisor out."""
    m, y = 6, 1
    negatives = draw(q_name, pairs_of([y] * 300), m)
    rho = (m * negatives.log_q.exp() * WEIGHTS[name](negatives).exp()).flatten()
    labels = negatives.labels.flatten()
    base = torch.full((L,), 1 / L) if q_name == "uniform" else PRIOR
    margins = {
        "constant": base / (1 - base[y]), "importance": torch.ones(L),
        "relative": (m * base[y]).expand(L), "tail": PRIOR / PRIOR[y], "equalised": PRIOR,
        "adaptive": (PRIOR[y] ** -0.25).expand(L),
    }  # fmt: skip
    torch.testing.assert_close(rho, margins[name][labels])


@pytest.mark.parametrize(
    ("name", "rho"),
    [
        ("importance", torch.ones(L, L)),
        ("tail", PRIOR[None, :] / PRIOR[:, None]),
        ("equalised", PRIOR.expand(L, -1)),
        ("adaptive", (PRIOR**-0.25)[:, None].expand(-1, L)),
    ],
)
def test_over_all_labels_a_target_margin_gives_the_pairwise_margin_loss(name, rho):
    """Eq. 4 and 6: the logit-adjusted, the equalised and the adaptive loss."""
    scores = torch.randn(4, L, generator=torch.Generator().manual_seed(0))
    pairs = pairs_of([0, 2, 4, 2])
    negatives = draw("all", pairs)
    positive = scores.gather(1, pairs.labels.unsqueeze(1)).squeeze(1)
    loss = softmax_loss(positive, scores, WEIGHTS[name](negatives))
    rows = [
        math.log1p(sum(float(rho[y, z] * (f[z] - f[y]).exp()) for z in range(L) if z != y))
        for f, y in zip(scores, pairs.labels.tolist(), strict=True)
    ]
    assert float(loss) == pytest.approx(sum(rows) / 4, rel=1e-5)


def test_a_label_without_training_documents_has_tail_weight_0():
    log_prior = torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0]).log()
    negatives = draw("uniform", pairs_of([0] * 20))
    log_w = TargetMargin(log_prior, logit_adjusted)(negatives)
    assert torch.equal(log_w == -math.inf, negatives.labels >= 2)


def test_a_pair_without_negatives_has_no_nan():
    negatives = draw("within_batch", pairs_of([1, 1]))
    assert not negatives.is_drawn.any()
    for weight in WEIGHTS.values():
        assert (weight(negatives) == -math.inf).all()


LABELS = [[1, 4], [], [0, 2, 5], [2]]
label_lists = st.lists(st.sets(st.integers(0, 7), max_size=6).map(sorted), min_size=1, max_size=9)


def truth_of(labels: list[list[int]], num_labels: int = 8) -> csr_array:
    dense = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, carried in enumerate(labels):
        dense[row, carried] = 1
    return csr_array(dense)


@given(label_lists, st.integers(1, 7), st.randoms(use_true_random=False))
def test_batches_hold_every_pair_once_in_the_order_of_the_documents(labels, batch_size, random):
    order = list(range(len(labels)))
    random.shuffle(order)
    batches = list(pair_batches(truth_of(labels), np.array(order), batch_size))
    found = [pair for batch in batches for pair in zip(*(x.tolist() for x in batch), strict=True)]
    assert found == [(document, label) for document in order for label in labels[document]]
    assert all(len(documents) == batch_size for documents, _ in batches[:-1])


@given(label_lists)
def test_numbered_pairs_are_those_of_a_double_loop(labels):
    expected = [(document, label) for document, x in enumerate(labels) for label in x]
    numbers = np.arange(len(expected))[::-1].copy()
    documents, found = pairs_at(truth_of(labels), numbers)
    assert list(zip(documents.tolist(), found.tolist(), strict=True)) == expected[::-1]


def test_one_label_of_each_document_is_uniform_over_its_labels():
    documents = np.repeat([2, 0, 3], 3000)
    drawn = one_label_each(truth_of(LABELS), documents, np.random.default_rng(0))
    counts = np.bincount(drawn[:3000], minlength=8)
    assert counts[[1, 3, 4, 6, 7]].sum() == 0
    assert chisquare(counts[[0, 2, 5]]).pvalue > 0.01
    assert set(drawn[3000:6000]) == {1, 4}
    assert set(drawn[6000:]) == {2}


def test_a_document_without_labels_gives_no_pair_and_is_refused_where_one_is_wanted():
    with pytest.raises(DataError, match="document 1 has no label"):
        one_label_each(truth_of(LABELS), np.array([0, 1]), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("exclude", "excluded"),
    [
        ("none", [[], []]),
        ("positive", [[5], [2]]),
        ("document", [[0, 2, 5], [2, NO_LABEL, NO_LABEL]]),
    ],
)
def test_pairs_exclude_what_is_asked(exclude, excluded):
    pairs = make_pairs(truth_of(LABELS), np.array([2, 3]), np.array([5, 2]), exclude, "cpu")
    assert pairs.documents.tolist() == [2, 3]
    assert pairs.labels.tolist() == [5, 2]
    assert pairs.excluded.tolist() == excluded
