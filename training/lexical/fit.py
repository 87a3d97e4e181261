"""Fitting the scorer `names`: one classifier that tells right finds of label names from wrong ones.

A label's own documents must not vote for its name: a document's matches are described by how often
names were right in the other folds of the training documents. Labels of which all documents are in
one fold are there what labels without documents are later, in the right proportion.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from jaxtyping import Bool, Float32, Int64
from joblib import cpu_count
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from longtail.models.labels.catalogue import LabelCatalogue, named_label
from longtail.models.lexical.boosted_trees import LEAF, BoostedTrees
from longtail.models.lexical.matcher import (
    FEATURES,
    NUM_KINDS,
    FindHistory,
    Matches,
    NameMatcher,
    WordCounts,
    pairs_of,
)
from longtail.models.lexical.name_model import NameModel
from longtail.models.lexical.terms import LabelTerms, names_of, rising
from longtail.models.lexical.words import NameWords, ReadText
from longtail.models.names import NAMES
from longtail.training.fitting import FittedOn, Fitting
from longtail.training.runtime.run_log import progress_bar

logger = logging.getLogger(__name__)

_NUM_FOLDS = 5
_MAX_DOCUMENTS = 20_000
"""Whose matches the classifier learns from, at most; finds are counted in all documents."""
_MAX_MATCHES = 300_000
"""Matches that the classifier learns from, of as many of these documents as give them."""
_MAX_KEPT = 50_000_000
"""Words of the training documents that are kept between the two passes, at most; the documents
behind them are read again."""
_WORDS_OF_A_TEXT = 50
"""As many words take as much memory as a document without words."""
_TEXTS_A_PART = 64
"""That one thread matches at a time."""
_PARTS_AHEAD = 4
"""Parts a processor that are matched ahead of counting."""
_LEAST_TRUE = 20
"""Right finds without which there is nothing to learn, and wrong ones."""
_SHARE_IN_A_SENTENCE = FEATURES.index("share in one sentence")
_ALMOST_ALL = 0.999
_NUM_TREES = 100
_NUM_LEAVES = 15
_LEARNING_RATE = 0.1
_LEAST_IN_A_LEAF = 200
"""Chosen, as the weight of the prior in `FindHistory`, on the dev split of the demo; with 20, trees
learn single labels by heart and P@1 falls by 6 points."""


@dataclass(slots=True)
class _Found:
    """What was found in the training documents.

    Attributes:
        histories: Histories of the labels, for each fold.
        parts: Seen features, labels, kinds, fold and truth of the matches to learn from, and the
            places of their documents in a random order.
    """

    histories: list[FindHistory]
    parts: list[tuple[np.ndarray, ...]] = field(default_factory=list)


class NamesFitting(Fitting):
    """Learns how often names are right that are found in documents."""

    name = NAMES

    def fit(self, on: FittedOn, settings: None, before: NameModel | None) -> NameModel | None:
        """Return the model with the previous classifier, or the previous model itself."""
        del settings
        tfidf = on.sparse.tfidf
        found = fit_name_model(
            on.texts, on.truth, on.catalogue, tfidf.forms.languages,
            seed=on.seed, removes_markup=tfidf.removes_markup,
            trees=None if before is None else before.trees,
        )  # fmt: skip
        return found or before


def fit_name_model(
    texts: Callable[[], Iterable[str]],
    truth: Float32[csr_array, "document label"],
    catalogue: LabelCatalogue,
    languages: Sequence[str] = (),
    *,
    seed: int,
    removes_markup: bool = False,
    trees: BoostedTrees | None = None,
) -> NameModel | None:
    """Fit the classifier of matches by cross-fitting, and count finds in all documents.

    Args:
        texts: Gives the texts of the training documents; called twice.
        truth: Their labels.
        catalogue: All labels.
        languages: Languages of texts and names (`longtail.models.scorers.word_forms`).
        seed: Seed of the folds, and of the documents that are learned from.
        removes_markup: Whether texts are read without HTML.
        trees: The classifier, where it is not to be fitted, as most of these documents taught it.

    Returns:
        The model; None where names are hardly ever right, which teaches nothing.
    """
    words = words_of(catalogue, languages, removes_markup=removes_markup)
    if not len(words):
        logger.warning("names: no label has a name with a word in it, so there is no such scorer")
        return None
    read = _ReadTexts(texts, words)
    terms = LabelTerms.of(catalogue, words)
    counts = count_words(read, catalogue, words, terms)
    num_taught = 0 if trees is not None else _MAX_DOCUMENTS
    found = _find(read, truth, NameMatcher(catalogue, words, counts, terms), seed, num_taught)
    history = FindHistory.none(len(catalogue))
    for each in found.histories:
        history = history.plus(each)
    if trees is None:
        trees = _fit_trees(found, history, seed)
    if trees is None:
        return None
    labels = LabelCatalogue(map(named_label, catalogue))
    return NameModel(labels, counts, history, trees, tuple(languages), removes_markup)


class _ReadTexts:
    """The training documents as names are looked for in them, read again and again."""

    def __init__(self, texts: Callable[[], Iterable[str]], words: NameWords) -> None:
        self._texts = texts
        self._words = words
        self._kept: list[ReadText] = []
        self._room = _MAX_KEPT
        self._are_all_kept = False

    def __iter__(self) -> Iterator[ReadText]:
        yield from self._kept
        if self._are_all_kept:
            return
        for text in islice(self._texts(), len(self._kept), None):
            read = self._words.read_text(text)
            if self._room > 0:
                self._kept.append(read)
                self._room -= len(read.words) + _WORDS_OF_A_TEXT
            yield read
        self._are_all_kept = self._room > 0


def _find(
    texts: Iterable[ReadText],
    truth: Float32[csr_array, "document label"],
    matcher: NameMatcher,
    seed: int,
    num_taught: int,
) -> _Found:
    """Match all documents; keep the matches of some of them, at most `num_taught`."""
    num_documents = truth.shape[0]
    order = np.random.default_rng(seed).permutation(num_documents)
    folds, is_kept = order % _NUM_FOLDS, order < num_taught
    counted = np.zeros((2, _NUM_FOLDS, truth.shape[1], NUM_KINDS), dtype=np.int64)
    found = _Found([FindHistory(*counted[:, fold]) for fold in range(_NUM_FOLDS)])
    first = 0
    with progress_bar(total=num_documents, desc="names", unit="document") as bar:
        for matches in _matched(texts, matcher):
            documents = first + matches.texts
            is_true = _is_true(truth, documents, matches.labels)
            _count(counted, folds[documents], matches, is_true)
            kept = is_kept[documents]
            columns = (
                matches.seen, matches.labels, matches.kinds, folds[documents], is_true,
                order[documents],
            )  # fmt: skip
            found.parts.append(tuple(column[kept] for column in columns))
            num_texts = len(matches.starts) - 1
            first += num_texts
            bar.update(num_texts)
    return found


def _matched(texts: Iterable[ReadText], matcher: NameMatcher) -> Iterator[Matches]:
    """Yield the matches of consecutive texts: other processors find the next ones meanwhile."""
    rest, running = iter(texts), deque[Future[Matches]]()
    with ThreadPoolExecutor(cpu_count()) as threads:
        while part := list(islice(rest, _TEXTS_A_PART)):
            running.append(threads.submit(matcher.match_read, part))
            if len(running) > _PARTS_AHEAD * cpu_count():
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _is_true(
    truth: Float32[csr_array, "document label"],
    documents: Int64[np.ndarray, match],
    labels: Int64[np.ndarray, match],
) -> Bool[np.ndarray, match]:
    """Return whether documents carry labels; documents rise."""
    if not len(documents):
        return np.zeros(0, dtype=np.bool_)
    first, last = int(documents[0]), int(documents[-1]) + 1
    part = truth[first:last]
    num_labels = truth.shape[1]
    rows = np.repeat(np.arange(first, first + part.shape[0]), np.diff(part.indptr))
    there = rows.astype(np.int64) * num_labels + part.indices
    return np.isin(documents * num_labels + labels, there)


def _count(
    counted: Int64[np.ndarray, "what fold label kind"],
    folds: Int64[np.ndarray, match],
    matches: Matches,
    is_true: Bool[np.ndarray, match],
) -> None:
    """Count finds, and right ones behind them; one place a find, which NumPy counts much faster."""
    at = np.ravel_multi_index((folds, matches.labels, matches.kinds), counted.shape[1:])
    found, right = counted.reshape(2, -1)
    np.add.at(found, at, 1)
    np.add.at(right, at[is_true], 1)


def _fit_trees(found: _Found, history: FindHistory, seed: int) -> BoostedTrees | None:
    """Fit gradient-boosted trees on the matches, each described by the other folds."""
    columns = [np.concatenate(each) for each in zip(*found.parts, strict=True)]
    places = columns.pop()
    if len(places) > _MAX_MATCHES:
        is_used = places < np.partition(places, _MAX_MATCHES)[_MAX_MATCHES]
        columns = [column[is_used] for column in columns]
    seen, labels, kinds, folds, is_true = columns
    num_true = int(is_true.sum())
    if num_true < _LEAST_TRUE:
        logger.warning(
            "names: %d of %d finds of label names are right, which is too few to learn from (at "
            "least %d), so there is no such scorer",
            num_true, len(is_true), _LEAST_TRUE,
        )  # fmt: skip
        return None
    if len(is_true) - num_true < _LEAST_TRUE:
        logger.info("names: %d of %d finds of label names are right", num_true, len(is_true))
        return _whole_names_first(num_true, len(is_true) - num_true)
    known = np.empty((len(labels), 2), dtype=np.float32)
    for fold, own in enumerate(found.histories):
        is_here = folds == fold
        others = history.plus(own, -1)
        known[is_here] = others.features(labels[is_here], kinds[is_here])
    rows = np.hstack([seen, known])
    model = HistGradientBoostingClassifier(
        learning_rate=_LEARNING_RATE, max_iter=_NUM_TREES, max_leaf_nodes=_NUM_LEAVES,
        min_samples_leaf=min(_LEAST_IN_A_LEAF, num_true), early_stopping=False, random_state=seed,
    )  # fmt: skip
    with threadpool_limits(1):  # threads that wait for each other beside other work take far longer
        model.fit(rows, is_true)
    trees = _exported(model)
    expected = model.decision_function(rows[:1000])
    assert np.allclose(trees.log_odds(rows[:1000]), expected, rtol=1e-4, atol=1e-4)
    return trees


def _whole_names_first(num_true: int, num_false: int) -> BoostedTrees:
    """Return a single tree, of where hardly a find is wrong: names with all their words are better.

    Args:
        num_true: Finds that are right.
        num_false: Finds that are wrong; too few to learn from.
    """
    return BoostedTrees(
        roots=np.array([0], dtype=np.int64),
        features=np.array([_SHARE_IN_A_SENTENCE, LEAF, LEAF], dtype=np.int64),
        thresholds=np.array([_ALMOST_ALL, 0.0, 0.0]),
        lefts=np.array([1, 0, 0], dtype=np.int64),
        rights=np.array([2, 0, 0], dtype=np.int64),
        values=np.array([0.0, -1.0, 1.0]),
        baseline=np.array([float(np.log((num_true + 1) / (num_false + 1)))]),
    )


def _exported(model: HistGradientBoostingClassifier) -> BoostedTrees:
    """Return scikit-learn's trees as arrays; it has no public way to them."""
    nodes = [tree[0].nodes for tree in model._predictors]
    roots = np.concatenate([[0], np.cumsum([len(each) for each in nodes])[:-1]]).astype(np.int64)
    offsets = np.repeat(roots, [len(each) for each in nodes])
    every = np.concatenate(nodes)
    is_leaf = every["is_leaf"].astype(np.bool_)
    return BoostedTrees(
        roots=roots,
        features=np.where(is_leaf, LEAF, every["feature_idx"]).astype(np.int64),
        thresholds=np.where(is_leaf, 0.0, every["num_threshold"]).astype(np.float64),
        lefts=np.where(is_leaf, 0, every["left"] + offsets).astype(np.int64),
        rights=np.where(is_leaf, 0, every["right"] + offsets).astype(np.int64),
        values=np.where(is_leaf, every["value"], 0.0).astype(np.float64),
        baseline=np.array([float(model._baseline_prediction.item())]),
    )


def words_of(
    catalogue: LabelCatalogue, languages: Sequence[str] = (), *, removes_markup: bool = False
) -> NameWords:
    """Return the words of all names of labels."""
    names = (name for label in catalogue for name in names_of(label))
    return NameWords.of_names(names, languages, removes_markup=removes_markup)


def count_words(
    texts: Iterable[ReadText],
    catalogue: LabelCatalogue,
    words: NameWords,
    terms: LabelTerms | None = None,
) -> WordCounts:
    """Count the documents of the words, and of the pairs of words, that names have.

    Args:
        texts: Training documents, as the words read them.
        catalogue: The labels.
        words: Words of their names.
        terms: The names as these words; None: they are read.
    """
    return counts_of(texts, words, pairs_of(terms or LabelTerms.of(catalogue, words)))


def counts_of(
    texts: Iterable[ReadText], words: NameWords, pairs: Int64[np.ndarray, pair]
) -> WordCounts:
    """Count the documents of words and of pairs of them (see `WordCounts`)."""
    documents = np.zeros(len(words), dtype=np.int64)
    pair_documents = np.zeros(len(pairs), dtype=np.int64)
    num_documents, rest = 0, iter(texts)
    while part := list(islice(rest, _TEXTS_A_PART)):
        num_documents += len(part)
        read = np.concatenate([text.words for text in part]).astype(np.int64)
        owners = np.repeat(np.arange(len(part)), [len(text.words) for text in part])
        is_word = read >= 0
        _count_once(documents, owners[is_word], read[is_word])
        is_pair = is_word[:-1] & is_word[1:] & (owners[:-1] == owners[1:])
        keys, owners = (read[:-1] << 32 | read[1:])[is_pair], owners[:-1][is_pair]
        at = np.searchsorted(pairs, keys)
        is_known = at < len(pairs)
        is_known[is_known] = pairs[at[is_known]] == keys[is_known]
        _count_once(pair_documents, owners[is_known], at[is_known])
    return WordCounts(words.words, documents, pairs, pair_documents, num_documents)


def _count_once(
    counts: Int64[np.ndarray, number],
    owners: Int64[np.ndarray, found],
    numbers: Int64[np.ndarray, found],
) -> None:
    """Count in how many documents each number occurs."""
    np.add.at(counts, rising(owners << 32 | numbers) & 0xFFFFFFFF, 1)
