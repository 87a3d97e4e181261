"""Every distribution: what it draws against its log q, with and without excluded labels."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning import distributions, document_distributions
from longtail.training.learning.distributions import (
    AliasTable,
    AllLabels,
    Frequency,
    Shared,
    Uniform,
    UniformSubset,
    WithinBatch,
    log_frequencies,
)
from longtail.training.learning.document_distributions import (
    HardNegatives,
    PartlyUniform,
    SoftmaxNegatives,
    TreeNegatives,
    cumulative_sums,
    draw_with_replacement,
)
from longtail.training.learning.sampling import Negatives, Pairs
from tests.closeness import assert_all_close

NUM_LABELS = 12
NUM_PAIRS = 400
COUNTS = np.array([40, 1, 25, 3, 9, 0, 2, 7, 5, 1, 4, 3])
HARD = torch.tensor([[3, 8, 1, NO_LABEL]]).expand(NUM_PAIRS, -1)
VECTORS = torch.randn(NUM_LABELS, 3, generator=torch.Generator().manual_seed(5))
BIASES = torch.linspace(-1, 1, NUM_LABELS)
DOCUMENT = torch.tensor([0.5, -1.0, 0.8])


class TableTree:
    """A label tree without a tree: the softmax of the scores."""

    def project(self, vectors):
        return vectors

    def log_prob(self, features, labels):
        return (features @ VECTORS.T + BIASES).log_softmax(dim=1).gather(1, labels)

    def sample(self, features, num, generator):
        p = (features @ VECTORS.T + BIASES).softmax(dim=1)
        return torch.multinomial(p, num, replacement=True, generator=generator)


def score_all(pairs: Pairs) -> Tensor:
    return pairs.document_vectors() @ VECTORS.T + BIASES


EACH = {
    "uniform": lambda: Uniform(NUM_LABELS, 20),
    "uniform_subset": lambda: UniformSubset(NUM_LABELS, 3),
    "shuffled_subset": lambda: UniformSubset(NUM_LABELS, 7),
    "frequency": lambda: Frequency.of(COUNTS, 1.0, 20, "cpu"),
    "frequency_root": lambda: Frequency.of(COUNTS, 0.5, 20, "cpu"),
    "hard": lambda: HardNegatives(HARD, 0.6, NUM_LABELS, 20),
    "hard_alone": lambda: HardNegatives(HARD, 1.0, NUM_LABELS, 20),
    "softmax": lambda: SoftmaxNegatives(score_all, 20),
    "tree": lambda: TreeNegatives(TableTree(), 20),
    "tree_partly_uniform": lambda: TreeNegatives(PartlyUniform(TableTree(), 0.3, NUM_LABELS), 20),
}
SHARED = {
    "uniform": lambda: Shared(Uniform(NUM_LABELS, 8000)),
    "uniform_subset": lambda: Shared(UniformSubset(NUM_LABELS, 5)),
    "frequency": lambda: Shared(Frequency.of(COUNTS, 0.75, 8000, "cpu")),
    "all": lambda: AllLabels(NUM_LABELS),
}
NOTHING = torch.empty((NUM_PAIRS, 0), dtype=torch.int64)
SOME = torch.tensor([[2, NO_LABEL, 8]]).expand(NUM_PAIRS, -1)


def pairs_of(excluded: Tensor = NOTHING, label: int = 2, count: int = NUM_PAIRS) -> Pairs:
    return Pairs(
        documents=torch.arange(count),
        labels=torch.full((count,), label),
        excluded=excluded[:count],
        vectors=DOCUMENT.expand(count, -1),
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def q_of(negatives: Negatives) -> np.ndarray:
    """The conditional q of all labels, from the log q of what was drawn for alike pairs."""
    q = np.zeros(NUM_LABELS)
    drawn = negatives.is_drawn
    q[negatives.labels.expand_as(drawn)[drawn]] = negatives.log_q[drawn].double().exp()
    return q


def counts_of(negatives: Negatives) -> np.ndarray:
    labels = negatives.labels.expand_as(negatives.is_drawn)[negatives.is_drawn]
    return np.bincount(labels.numpy(), minlength=NUM_LABELS)


def assert_follows(counts: np.ndarray, q: np.ndarray) -> None:
    assert not counts[q == 0].any()
    support = q > 0
    # Draws without replacement vary less than the test assumes, so it is on the safe side.
    assert chisquare(counts[support], counts.sum() * q[support]).pvalue > 0.01


@pytest.mark.parametrize("excluded", [NOTHING, SOME], ids=["all", "without"])
@pytest.mark.parametrize("name", EACH)
def test_draws_follow_the_q_that_they_tell(name, excluded):
    negatives = EACH[name]().draw(pairs_of(excluded), seeded())
    q = q_of(negatives)
    assert q.sum() == pytest.approx(1, abs=1e-5)
    assert not q[[2, 8]].any() or excluded is NOTHING
    assert_follows(counts_of(negatives), q / q.sum())


@pytest.mark.parametrize("excluded", [NOTHING, SOME], ids=["all", "without"])
@pytest.mark.parametrize("name", SHARED)
def test_shared_draws_follow_the_q_that_they_tell(name, excluded):
    distribution, generator, one = SHARED[name](), seeded(3), pairs_of(excluded, count=1)
    drawn = [distribution.draw(one, generator) for _ in range(500 if "subset" in name else 3)]
    q = np.max([q_of(negatives) for negatives in drawn], axis=0)
    assert q.sum() == pytest.approx(1, abs=1e-5)
    assert drawn[0].labels.shape[0] == 1
    assert_follows(np.sum([counts_of(negatives) for negatives in drawn], axis=0), q / q.sum())


@pytest.mark.parametrize("name", EACH)
def test_excluding_only_renormalises(name):
    free, bound = (EACH[name]().draw(pairs_of(x), seeded()) for x in (NOTHING, SOME))
    q, conditional = q_of(free), q_of(bound)
    q[[2, 8]] = 0
    assert_all_close(conditional, q / q.sum(), rtol=1e-5)
    torch.testing.assert_close(bound.log_q_positive, free.log_q_positive)


@pytest.mark.parametrize("name", EACH)
def test_the_positive_keeps_its_q(name):
    free = EACH[name]().draw(pairs_of(label=3), seeded())
    assert float(free.log_q_positive[0, 0].exp()) == pytest.approx(q_of(free)[3], rel=1e-5)


def test_every_subset_is_as_likely():
    labels = UniformSubset(20, 2).draw(
        pairs_of(torch.tensor([[0]]).expand(4000, 1), 0, 4000), seeded()
    )
    low, high = labels.labels.sort(dim=1).values.unbind(1)
    counts = np.bincount((20 * low + high).numpy(), minlength=400)
    assert (counts > 0).sum() == 19 * 18 // 2
    assert chisquare(counts[counts > 0]).pvalue > 0.01


def test_within_the_batch_negatives_are_the_other_positives():
    log_prior = torch.from_numpy(log_frequencies(COUNTS).astype(np.float32))
    labels = torch.tensor([0, 3, 0, 4])
    pairs = Pairs(torch.arange(4), labels, labels.unsqueeze(1))
    negatives = WithinBatch(log_prior).draw(pairs, seeded())
    kept = [negatives.labels[0][row].tolist() for row in negatives.is_drawn]
    assert kept == [[3, 4], [0, 0, 4], [3, 4], [0, 3, 0]]
    rest = log_prior.exp() / (1 - log_prior.exp()[0])
    torch.testing.assert_close(negatives.log_q[0], rest[labels].log())


def test_batches_of_independent_pairs_draw_from_the_training_distribution():
    prior = COUNTS / COUNTS.sum()
    drawn = torch.multinomial(torch.from_numpy(prior), 4000, replacement=True, generator=seeded())
    drawn[0] = 2
    one_row = torch.full((4000, 1), 2)
    log_prior = torch.from_numpy(log_frequencies(COUNTS).astype(np.float32))
    negatives = WithinBatch(log_prior).draw(Pairs(torch.arange(4000), drawn, one_row), seeded())
    prior[2] = 0
    assert_follows(np.bincount(drawn[negatives.is_drawn[0]], minlength=12), prior / prior.sum())


def test_frequencies_have_their_power_and_no_label_without_documents():
    log_q = log_frequencies(np.array([4, 1, 0]), 0.5)
    assert_all_close(np.exp(log_q), [2 / 3, 1 / 3, 0], rtol=1e-7)
    with pytest.raises(DataError, match="no label has a training document"):
        log_frequencies(np.zeros(3, dtype=np.int64))


def test_hard_negatives_are_those_of_the_pairs_document():
    hard = torch.tensor([[1, 2], [3, NO_LABEL], [NO_LABEL, NO_LABEL]])
    pairs = Pairs(torch.tensor([2, 0, 1]), torch.zeros(3, dtype=torch.int64), NOTHING[:3])
    distribution = HardNegatives(hard, 0.5, 10, 1000)
    q = distribution.log_q(pairs, torch.arange(10).unsqueeze(0)).exp()
    assert q[0].tolist() == pytest.approx([0.1] * 10)
    assert q[1].tolist() == pytest.approx([0.05, 0.3, 0.3] + [0.05] * 7)
    assert q[2].tolist() == pytest.approx([0.05] * 3 + [0.55] + [0.05] * 6)
    assert len(distribution.draw(pairs, seeded()).labels[0].unique()) == 10


@pytest.mark.parametrize("num_labels", [8, 9, 40])
def test_subsets_of_rows_that_draw_again_are_equally_likely(monkeypatch, num_labels):
    monkeypatch.setattr(distributions, "_num_draws_until_distinct", lambda *_: 4)
    excluded = torch.tensor([[0, 1, NO_LABEL]]).expand(3000, -1)
    labels = torch.full((3000,), 0)
    pairs = Pairs(labels, labels, excluded)
    found = UniformSubset(num_labels, 3).draw(pairs, torch.Generator().manual_seed(0)).labels
    ordered = found.sort(dim=1).values
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    assert ordered.min() == 2
    counts = torch.bincount(found.flatten(), minlength=num_labels)[2:]
    assert chisquare(counts).pvalue > 1e-4


def implied(table: AliasTable) -> np.ndarray:
    keep = table.keep.double().numpy()
    shares = keep.copy()
    np.add.at(shares, table.other.numpy(), 1 - keep)
    return shares / len(keep)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60).filter(any))
@example([0, 15, 14, 349, 350, 343])  # two labels need what two can give, but for a bit
def test_the_cells_hold_exactly_the_probabilities(weights):
    weights = np.array(weights, dtype=np.float64)
    table = AliasTable.of(weights, "cpu")
    np.testing.assert_allclose(implied(table), weights / weights.sum(), atol=1e-7)


def test_draws_follow_the_probabilities_and_never_have_none():
    weights = np.array([5.0, 0.0, 1.0, 3.0, 0.5])
    table = AliasTable.of(weights, "cpu")
    drawn = table.sample(20_000, torch.Generator().manual_seed(1))
    counts = np.bincount(drawn.numpy(), minlength=5)
    assert counts[1] == 0
    kept = weights > 0
    assert chisquare(counts[kept], 20_000 * weights[kept] / weights.sum()).pvalue > 0.01


class AsOnGpu(TorchDispatchMode):
    """Raises where a GPU would, as the documentation of `use_deterministic_algorithms` lists."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name == "multinomial" or (name == "cumsum" and args[0].is_floating_point()):
            raise RuntimeError(f"{name}_cuda does not have a deterministic implementation")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(document_distributions, "_is_on_cpu", lambda values: False)
    with AsOnGpu():
        yield


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_stand_in_raises_where_a_gpu_does():
    weights = torch.ones(2, 3)
    with AsOnGpu():
        with pytest.raises(RuntimeError, match="multinomial_cuda"):
            draw_with_replacement(weights, 4, generator())
        with pytest.raises(RuntimeError, match="cumsum_cuda"):
            cumulative_sums(weights.double())


def test_draws_on_a_gpu_follow_the_weights(on_gpu):
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 4.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 7.0]])
    drawn = draw_with_replacement(weights, 20_000, generator())
    for row, of_row in zip(drawn, weights, strict=True):
        counts = torch.bincount(row, minlength=6)
        assert not counts[of_row == 0].any()
        is_drawn = of_row > 0
        expected = of_row[is_drawn] / of_row.sum() * len(row)
        assert chisquare(counts[is_drawn].numpy(), expected.double().numpy()).pvalue > 1e-4


@pytest.mark.gpu
def test_a_gpu_draws_in_deterministic_mode():
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0]]).cuda()
    torch.use_deterministic_algorithms(True)
    try:
        drawn = draw_with_replacement(weights, 1000, torch.Generator("cuda").manual_seed(0))
    finally:
        torch.use_deterministic_algorithms(False)
    assert set(drawn.flatten().tolist()) == {1, 3}
