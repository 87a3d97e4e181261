"""Which documents a step learns from: each once an epoch, within bounds, the same when resumed."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from longtail.models.encoders.pretrained import load_tokenizer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.neural.batching import BatchPlan, LabelSubsets, hard_negatives
from longtail.training.neural.model import KEYWORD_DROPOUT
from longtail.training.pipeline.dense import read_training_texts
from longtail.training.pipeline.encoder_start import start_dense

some_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=150).map(np.array)


def plan_of(lengths, *, epochs=3, batch_size=8, batch_tokens=None, seed=(5, 1), max_steps=None):
    return BatchPlan(np.asarray(lengths), epochs, batch_size, batch_tokens, seed, max_steps)


def padded(plan: BatchPlan, rows: np.ndarray) -> int:
    return len(rows) * int(plan.lengths[rows].max())


def flat(batches) -> list[list[int]]:
    return [rows.tolist() for rows in batches]


@given(some_lengths, st.integers(1, 9), st.sampled_from([None, 40, 100, 5000]))
def test_every_epoch_has_each_document_once_within_both_bounds(lengths, size, tokens):
    plan = plan_of(lengths, batch_size=size, batch_tokens=tokens)
    for number in range(plan.epochs):
        batches = plan.epoch(number)
        assert sorted(chain.from_iterable(flat(batches))) == list(range(len(lengths)))
        assert all(0 < len(rows) <= size for rows in batches)
        if tokens is not None:
            assert all(padded(plan, rows) <= tokens for rows in batches)


@given(some_lengths, st.sampled_from([None, 60]), st.data())
def test_batches_from_any_step_on_are_those_of_the_whole(lengths, tokens, data):
    plan = plan_of(lengths, batch_tokens=tokens)
    whole = flat(chain.from_iterable(plan.epoch(number) for number in range(plan.epochs)))
    assert (plan.num_steps, plan.num_documents) == (len(whole), 3 * len(lengths))
    first = data.draw(st.integers(0, len(whole)))
    assert flat(plan.batches(first)) == whole[first:]
    assert plan.num_seen(first) == sum(map(len, whole[:first]))


@given(some_lengths, st.sampled_from([None, 60]), st.data())
def test_at_most_so_many_steps_are_the_first_of_the_epochs(lengths, tokens, data):
    whole = plan_of(lengths, batch_tokens=tokens)
    most = data.draw(st.integers(1, whole.num_steps + 3))
    plan = plan_of(lengths, batch_tokens=tokens, max_steps=most)
    taken = min(most, whole.num_steps)
    first = data.draw(st.integers(0, taken))
    assert plan.num_steps == taken
    assert plan.num_documents == plan.num_seen(taken) == whole.num_seen(taken)
    assert flat(plan.batches(first)) == flat(whole.batches(first))[: taken - first]


def test_a_token_bound_takes_documents_of_like_length_and_less_padding():
    lengths = np.random.default_rng(0).integers(5, 100, 3000)
    random = plan_of(lengths, epochs=1, batch_size=16)
    sorted_ = plan_of(lengths, epochs=1, batch_size=16, batch_tokens=16 * 100)
    waste = [
        sum(padded(plan, rows) for rows in plan.epoch(0)) / lengths.sum() - 1
        for plan in (random, sorted_)
    ]
    assert waste[0] > 0.5 and waste[1] < 0.03
    shortest_first = [int(lengths[rows].max()) for rows in sorted_.epoch(0)]
    assert shortest_first != sorted(shortest_first)


NO_HARD = np.empty((2, 0), dtype=np.int64)


def truth_of(positives: list[list[int]], num_labels: int) -> csr_array:
    dense = np.zeros((len(positives), num_labels), dtype=np.float32)
    for row, labels in enumerate(positives):
        dense[row, labels] = 1
    return csr_array(dense)


def draw(
    positives: list[list[int]], hard: list[list[int]], size: int, *, num_labels=30, seed=0
) -> list[int]:
    hard_array = np.array(hard, dtype=np.int64).reshape(len(positives), -1)
    subsets = LabelSubsets(truth_of(positives, num_labels), hard_array, size)
    rows = np.arange(len(positives))
    return subsets.draw(rows, np.random.default_rng(seed)).tolist()


@given(
    st.lists(st.lists(st.integers(0, 29), max_size=6), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(0, 9),
)
def test_a_subset_holds_all_positives_once_in_rising_order_and_has_its_size(positives, size, seed):
    drawn = draw(positives, [[] for _ in positives], size, seed=seed)
    wanted = {label for labels in positives for label in labels}
    assert wanted <= set(drawn)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == max(min(size, 30), len(wanted))


@pytest.mark.parametrize("seed", range(5))
def test_hard_negatives_come_by_rank_before_uniform_draws(seed):
    hard = [[11, 12], [13, 14]]
    assert set(draw([[1], [2]], hard, size=4, seed=seed)) == {1, 2, 11, 13}
    drawn = set(draw([[1], [2]], hard, size=5, seed=seed))
    assert {1, 2, 11, 13} < drawn
    assert drawn & {12, 14}


def test_random_fill_is_uniform_over_the_labels_that_are_left():
    rng = np.random.default_rng(12)
    subsets = LabelSubsets(truth_of([[0], [1]], 20), NO_HARD, 7)
    counts = np.zeros(20)
    for _ in range(2000):
        counts[subsets.draw(np.arange(2), rng)] += 1
    assert counts[:2].tolist() == [2000, 2000]
    # Draws without replacement vary less than the test assumes, so it is on the safe side.
    assert chisquare(counts[2:]).pvalue > 0.01


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_hard_negatives_equal_a_loop(seed, count):
    rng = np.random.default_rng(seed)
    ranked = np.array([rng.permutation(8) for _ in range(4)])
    ranked[:, 6:] = NO_LABEL
    truth = csr_array((rng.random((4, 8)) < 0.3).astype(np.float32))
    expected = []
    for row, carried in zip(ranked.tolist(), truth.toarray(), strict=True):
        wrong = [label for label in row if label != NO_LABEL and not carried[label]][:count]
        expected.append(wrong + [NO_LABEL] * (count - len(wrong)))
    assert hard_negatives(ranked, truth, count).tolist() == expected


LABELS = np.arange(4, 30)


@pytest.fixture
def read(tiny_corpus, tiny_encoder):
    """Returns the training texts of labels that all have the keyword `fishery`."""
    config = TrainingConfig.model_validate({
        "encoder": str(tiny_encoder), "document_max_tokens": 24, "retrieval": {"epochs": 1},
    })  # fmt: skip
    dataset = open_dataset(tiny_corpus)
    truth = dataset.split("train").scan().labels
    catalogue = dataset.catalogue
    catalogue = catalogue.replaced(
        pseudo_description=[f"{label.name}. fishery" for label in catalogue]
    )
    start, documents = start_dense(config, truth), dataset.split("train").texts()
    return read_training_texts(start, config, documents, catalogue, truth), catalogue


def rows_of(batch) -> list[list[int]]:
    return [ids[mask > 0].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


def test_each_label_is_read_with_or_without_its_keywords(read, tiny_encoder):
    texts, catalogue = read
    tokenizer = load_tokenizer(tiny_encoder)

    def ids_of(text: str) -> list[int]:
        return tokenize_texts(tokenizer, [text], 64).ids.tolist()

    num_bare, num_drawn = 0, 0
    for seed in range(20):
        rows = rows_of(texts.label_batch(LABELS, np.random.default_rng(seed), "cpu"))
        for label, ids in zip(LABELS.tolist(), rows, strict=True):
            bare, whole = ids_of(catalogue[label].name), ids_of(f"{catalogue[label].name}. fishery")
            assert ids in (bare, whole)
            num_bare += ids == bare
            num_drawn += 1
    share = KEYWORD_DROPOUT
    assert abs(num_bare / num_drawn - share) < 4 * np.sqrt(share * (1 - share) / num_drawn)


def test_the_same_draws_give_the_same_batch(read):
    texts, _ = read
    first, second, other = (
        rows_of(texts.label_batch(LABELS, np.random.default_rng(seed), "cpu")) for seed in (7, 7, 8)
    )
    assert first == second != other
