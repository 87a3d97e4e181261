"""The classifier of matches as it is fitted: by cross-fitting, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.kinds.registry import KINDS
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.matcher import FEATURES, NUM_KINDS, FindHistory, Matches, NameMatcher
from longtail.models.lexical.name_model import NameModel
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.fitting import FittedOn
from longtail.training.lexical import fit as module
from longtail.training.lexical.fit import NamesFitting, count_words, fit_name_model, words_of
from tests.closeness import assert_all_close
from tests.rankings import dense

NUM_LABELS = 12
NAMES = [f"{first} {second}" for first in ("river", "sea", "lake") for second in "abcd"]
NUM_SEEN = 16
EMPTY = (np.empty(0, np.float32), np.empty(0, np.int64))


def catalogue_of(names: list[str]) -> LabelCatalogue:
    return LabelCatalogue(
        Label(f"L{i}", name, description="d", pseudo_description="p", training_count=3)
        for i, name in enumerate(names)
    )


def corpus(num: int, seed: int = 0, right: float = 0.8) -> tuple[list[str], csr_array]:
    """Documents that say a name or two, of which so many are right; and parts of other names."""
    rng = np.random.default_rng(seed)
    texts, truth = [], np.zeros((num, NUM_LABELS), dtype=np.float32)
    for row in range(num):
        said = rng.choice(NUM_LABELS, 2, replace=False)
        other = NAMES[rng.integers(NUM_LABELS)].split()[0]
        texts.append(f"About {NAMES[said[0]]}. And {NAMES[said[1]]}, not {other}.")
        truth[row, said] = rng.random(2) < right
    return texts, csr_array(truth)


def fitted(texts: list[str], truth: csr_array, seed: int = 0) -> NameModel | None:
    return fit_name_model(lambda: texts, truth, catalogue_of(NAMES), seed=seed)


def matched(texts: list[str]) -> Matches:
    """The matches of documents that words are counted in, too."""
    catalogue = catalogue_of(NAMES)
    words = words_of(catalogue)
    return NameMatcher(
        catalogue, words, count_words(map(words.read_text, texts), catalogue, words)
    ).match(texts)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(module, "_NUM_TREES", 20)
    monkeypatch.setattr(module, "_LEAST_IN_A_LEAF", 5)


@pytest.fixture
def learned(monkeypatch):
    """Fits, and returns the rows that the classifier learns from, and their truth."""

    def fit(texts: list[str], truth: csr_array) -> list[np.ndarray]:
        seen: list[np.ndarray] = []
        original = module.HistGradientBoostingClassifier.fit

        def noted(self, rows, is_true):
            seen.extend([rows, is_true])
            return original(self, rows, is_true)

        monkeypatch.setattr(module.HistGradientBoostingClassifier, "fit", noted)
        assert fitted(texts, truth) is not None
        return seen

    return fit


def test_right_finds_are_told_from_wrong_ones():
    model = fitted(*corpus(200))
    texts, truth = corpus(100, seed=1, right=1.0)
    scores = dense(model.scores(texts), NUM_LABELS)
    scores[scores == 0] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    hits = np.take_along_axis(truth.toarray(), best, axis=1)
    assert hits.mean() > 0.95


def test_finds_of_all_documents_are_counted():
    texts, truth = corpus(200)
    model = fitted(texts, truth)
    matches = model.matcher.match(texts)
    found, right = np.zeros((2, NUM_LABELS, NUM_KINDS), dtype=np.int64)
    dense = truth.toarray()
    for text, label, kind in zip(matches.texts, matches.labels, matches.kinds, strict=True):
        found[label, kind] += 1
        right[label, kind] += int(dense[text, label])
    assert np.array_equal(model.history.found, found)
    assert np.array_equal(model.history.right, right)
    assert [label.training_count for label in model.catalogue] == [0] * NUM_LABELS
    assert {label.pseudo_description for label in model.catalogue} == {""}


def test_a_documents_own_labels_do_not_change_how_its_matches_are_described(learned):
    """Nor do those of its fold; of the other documents they do."""
    texts, truth = corpus(200)
    folds = np.random.default_rng(0).permutation(200) % module._NUM_FOLDS
    rows, before = learned(texts, truth)
    dense = truth.toarray()
    changed = np.where((folds == folds[7])[:, None], 1 - dense, dense)
    others, after = learned(texts, csr_array(changed.astype(np.float32)))
    document = matched(texts).texts
    is_own = folds[document] == folds[7]
    assert np.array_equal(rows[is_own], others[is_own])
    assert (before[is_own] != after[is_own]).all()
    known = slice(NUM_SEEN, None)
    assert not np.array_equal(rows[~is_own][:, known], others[~is_own][:, known])
    assert np.array_equal(rows[:, :NUM_SEEN], others[:, :NUM_SEEN])


def test_matches_are_described_by_the_other_folds(learned):
    """The oracle: finds counted document by document."""
    texts, truth = corpus(150)
    rows, is_true = learned(texts, truth)
    folds = np.random.default_rng(0).permutation(150) % module._NUM_FOLDS
    matches, dense = matched(texts), truth.toarray()
    assert is_true.tolist() == (dense[matches.texts, matches.labels] > 0).tolist()
    for place in range(0, len(rows), 37):
        label, kind = matches.labels[place], matches.kinds[place]
        others = folds[matches.texts] != folds[matches.texts[place]]
        history = FindHistory.none(NUM_LABELS)
        at = (matches.labels[others], matches.kinds[others])
        np.add.at(history.found, at, 1)
        np.add.at(history.right, at, is_true[others])
        wanted = history.features(np.array([label]), np.array([kind]))[0]
        np.testing.assert_array_equal(rows[place, NUM_SEEN:], wanted)
    assert rows.shape[1] == len(FEATURES)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batches_change_nothing(monkeypatch, batch):
    texts, truth = corpus(120)
    wanted = fitted(texts, truth)
    monkeypatch.setattr(module, "_TEXTS_A_PART", batch)
    assert same(fitted(texts, truth), wanted)


def test_of_many_documents_some_are_learned_from_and_all_are_counted(monkeypatch, learned):
    monkeypatch.setattr(module, "_MAX_DOCUMENTS", 50)
    texts, truth = corpus(200)
    rows, _ = learned(texts, truth)
    order = np.random.default_rng(0).permutation(200)
    matches = matched(texts)
    assert len(rows) == np.count_nonzero(order[matches.texts] < 50)
    assert fitted(texts, truth).history.found.sum() == len(matches.labels)


def same(first: NameModel | None, second: NameModel | None) -> bool:
    assert first is not None and second is not None
    kind = KINDS["names"]
    arrays = [kind.arrays(each) for each in (first, second)]
    is_same = all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
    return is_same and kind.texts(first) == kind.texts(second)


def coded(texts: list[str], truth: csr_array) -> NameModel:
    labels = [replace(x, id=f"N{50 + i}.{i}7") for i, x in enumerate(catalogue_of(NAMES))]
    return fit_name_model(lambda: texts, truth, LabelCatalogue(labels), seed=0)


def test_a_code_in_a_text_ranks_its_label_first_though_no_training_text_has_one():
    texts, truth = corpus(200)
    model = coded(texts, truth)
    for text in ("Diagnosis: N53.37", "N53.37, lake of the river a\n sea. lake"):
        scores = model.scores([text])
        assert scores.indices[scores.data.argmax()] == 3
        assert scores.data.max() > 2 * model.scores(texts).data.max()  # for blends
    plain = fitted(texts, truth)
    assert np.array_equal(model.scores(texts).data, plain.scores(texts).data)  # ids disturb nothing
    assert KINDS["names"].arrays(plain)["found"].shape == (NUM_LABELS, NUM_KINDS - 1)


@pytest.mark.parametrize("is_right", [True, False])
def test_what_training_texts_say_of_codes_is_learned(is_right):
    texts, truth = corpus(300)
    wrong = np.argwhere(truth.toarray() == 0)[:: NUM_LABELS - 2]
    right = np.argwhere(truth.toarray())[::2]
    for row, label in right if is_right else wrong:
        texts[row] += f" N{50 + label}.{label}7."
    found = coded(texts, truth).scores(["see N53.37 and river a", "see N53.37"])
    scores = dense(found, NUM_LABELS)
    assert (scores[0].argmax() == 3) == is_right
    assert (scores[1, 3] > 0) == is_right


def test_where_names_are_never_wrong_whole_names_come_first():
    texts, truth = corpus(100)
    model = fitted(texts, csr_array(np.ones(truth.shape, dtype=np.float32)))
    assert model is not None
    matches = model.matcher.match(texts)
    scores = model.score(matches)
    is_whole = matches.seen[:, 1] > 0.999
    assert 0 < is_whole.sum() < len(is_whole)
    assert scores[is_whole].min() > scores[~is_whole].max() > 0


def test_documents_are_counted_once_for_each_word_and_pair():
    catalogue = catalogue_of(["river law", "law of tax"])
    words = words_of(catalogue)
    texts = ["River law, river laws", "law river", "tax of law of tax", "law. of", "zebra", ""]
    texts += ["river", "law"]  # whose words are no pair
    counts = count_words(map(words.read_text, texts), catalogue, words)
    assert counts.words == ("law", "of", "river", "tax") == words.words
    assert counts.documents.tolist() == [5, 2, 3, 1]
    pairs = [tuple(counts.words[i] for i in divmod(pair, 2**32)) for pair in counts.pairs.tolist()]
    assert dict(zip(pairs, counts.pair_documents.tolist(), strict=True)) == {
        ("law", "of"): 1,
        ("of", "tax"): 1,
        ("river", "law"): 1,
    }
    assert counts.num_documents == 8
    idf = counts.idf(counts.documents)
    assert_all_close(idf, np.log(9 / (1 + counts.documents)) + 1, rtol=1e-6)


def test_fitted_on_more_documents_it_keeps_its_classifier():
    texts, truth = corpus(400)
    catalogue = catalogue_of(NAMES)
    before = fit_name_model(lambda: texts[:380], truth[:380], catalogue, seed=0)
    sparse = SparseModel.of_rows(
        TfidfModel(["x"], np.ones(1, np.float32)), csr_array((0, 1), dtype=np.float32), *EMPTY
    )
    on = FittedOn(
        lambda: texts, list, truth, truth, catalogue, sparse, None, 0
    )  # fmt: skip
    after = NamesFitting().fit(on, None, before)
    assert after.trees is before.trees
    assert (before.counts.num_documents, after.counts.num_documents) == (380, 400)
    assert after.history.found.sum() > before.history.found.sum()
