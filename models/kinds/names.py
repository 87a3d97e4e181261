"""The scorer `names`: labels whose names are found in the text, seen in training or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float32, Int64

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import DataError
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.typed_json import json_forms
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.boosted_trees import BoostedTrees
from longtail.models.lexical.matcher import FEATURES, NUM_KINDS, FindHistory, WordCounts
from longtail.models.lexical.name_model import NameModel
from longtail.models.matrices import ArrayRule, Rows, check_arrays
from longtail.models.names import MAX_DOCUMENTS, NAMES, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import ListedSource
from longtail.models.results import Evidence
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.word_forms import languages_of

_WORDS_FILE = "names.json"
_LABELS_FILE = "names.jsonl"
_TREE = "tree_"
_COUNTS = ArrayRule(("int64",), 1, least=0, most=MAX_DOCUMENTS)
_FINDS = ArrayRule(("int64",), 2, least=0, most=MAX_DOCUMENTS)
_NODES = ArrayRule(("int64",), 1)
_VALUES = ArrayRule(("float64",), 1)
_RULES = {
    "documents": _COUNTS,
    "pairs": ArrayRule(("int64",), 1, least=0),
    "pair_documents": _COUNTS,
    "num_documents": _COUNTS,
    "found": _FINDS,
    "right": _FINDS,
    f"{_TREE}roots": _NODES,
    f"{_TREE}features": _NODES,
    f"{_TREE}thresholds": ArrayRule(("float64",), 1, is_finite=False),
    f"{_TREE}lefts": _NODES,
    f"{_TREE}rights": _NODES,
    f"{_TREE}values": _VALUES,
    f"{_TREE}baseline": _VALUES,
}


class NamesScorer(Scorer):
    """Scores labels by how their names occur in a text; other labels get no score."""

    def __init__(self, names: NameModel, log_priors: Float32[np.ndarray, label]) -> None:
        """Take what gives scores, and what the tail dial needs.

        Args:
            names: Which has read the texts.
            log_priors: log pi of each label of the catalogue, in nats.
        """
        self._names = names
        self._log_priors = log_priors

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """All labels."""
        return np.arange(len(self._log_priors), dtype=np.int64)

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores, less tau log pi_y of each label."""
        assert correction == "none"
        scores = self._scores(batch)
        if tail_dial:
            raised = tail_dial * self._log_priors[scores.indices].astype(np.float64)
            scores = scores._replace(data=(scores.data - raised).astype(np.float32))
        return [ListedSource(scores)]

    def prepare(self, batch: TextBatch) -> None:
        """Look for names."""
        self._scores(batch)

    def known_tokens(self, batch: TextBatch, *, is_alone: bool) -> Int64[np.ndarray, text]:
        """Return how many different words are in a name of a label.

        In a blend only whether a name is found: others know the words of names, too.
        """
        if is_alone:
            known: Int64[np.ndarray, text] = batch.once(
                "words of names", lambda: self._names.num_known_words(batch.texts)
            )
            return known
        starts = self._scores(batch).indptr
        return (starts[1:] > starts[:-1]).astype(np.int64)

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return the name of each label that was found in a text."""
        found = self._names.found(batch.texts[text], frozenset(labels))
        return {label: Evidence(name=match) for label, match in found.items()}

    def _scores(self, batch: TextBatch) -> Rows:
        """Return the log-odds of the labels whose names are found (`NameModel.scores`)."""
        return batch.once(NAMES, lambda: self._names.scores(batch.texts))


@dataclass(frozen=True, slots=True)
class _Words:
    languages: list[str]
    words: tuple[str, ...]
    removes_markup: bool = False


_, _read_words = json_forms(_Words, max_elements=MANY_ELEMENTS)


class NamesKind(ScorerKind):
    """The model of label names."""

    name = NAMES
    may_find_nothing = True
    gives_logits = True
    scores_new_labels = True

    def arrays(self, model: NameModel) -> dict[str, np.ndarray]:
        """Return the counts and the trees."""
        counts, history = model.counts, model.history
        trees = {f"{_TREE}{x.name}": getattr(model.trees, x.name) for x in fields(BoostedTrees)}
        return trees | {
            "documents": counts.documents,
            "pairs": counts.pairs,
            "pair_documents": counts.pair_documents,
            "num_documents": np.array([counts.num_documents], dtype=np.int64),
            "found": _stored(history.found),
            "right": _stored(history.right),
        }

    def texts(self, model: NameModel) -> dict[str, str]:
        """Return the words, and the labels with all their names."""
        words: dict[str, object] = {"languages": model.languages, "words": model.counts.words}
        if model.removes_markup:
            words["removes_markup"] = True
        return {
            _WORDS_FILE: json.dumps(words, ensure_ascii=False, sort_keys=True),
            _LABELS_FILE: model.catalogue.to_jsonl(),
        }

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> NameModel:
        """Return the model."""
        check_arrays(arrays, _RULES)
        stored = _read_words(texts[_WORDS_FILE])
        (num_documents,) = arrays["num_documents"].tolist()
        model = NameModel(
            catalogue=_labels_of(texts[_LABELS_FILE]),
            counts=WordCounts(
                stored.words, arrays["documents"], arrays["pairs"], arrays["pair_documents"],
                num_documents,
            ),
            history=FindHistory(_read(arrays["found"]), _read(arrays["right"])),
            trees=BoostedTrees(**{x.name: arrays[_TREE + x.name] for x in fields(BoostedTrees)}),
            languages=languages_of(stored.languages),
            removes_markup=stored.removes_markup,
            tfidf=sparse.tfidf,
        )  # fmt: skip
        _check(model, num_labels)
        return model

    def make(self, model: NameModel, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer; its search is built now, not at the first query."""
        del placement
        model.prepare_matcher()
        return NamesScorer(model, parts.catalogue.log_priors)

    def with_labels(self, model: NameModel, labels: Sequence[Label]) -> NameModel:
        """Return a model that looks for the names of more labels."""
        return model.with_labels(labels)

    def without_documents(self, model: NameModel, is_unseen: Bool[np.ndarray, label]) -> NameModel:
        """Return a model that never saw some labels be right."""
        right = np.where(is_unseen[:, None], 0, model.history.right)
        return replace(model, history=FindHistory(model.history.found, right))


def named_labels(bundle: Bundle) -> LabelCatalogue:
    """Return the labels of a bundle that has a model of names, with all their names."""
    return _labels_of(bundle.text(_LABELS_FILE))


def _labels_of(text: str) -> LabelCatalogue:
    # Return the labels with all their names.
    try:
        return LabelCatalogue.from_jsonl(text)
    except DataError as error:
        raise ValueError(f"{_LABELS_FILE}: {error}") from error


def _stored(finds: Int64[np.ndarray, "label kind"]) -> Int64[np.ndarray, "label stored"]:
    """Return finds without the last kind, codes, where there are none of it."""
    return finds if finds[:, -1].any() else np.ascontiguousarray(finds[:, :-1])


def _read(finds: Int64[np.ndarray, "label stored"]) -> Int64[np.ndarray, "label kind"]:
    return np.pad(finds, ((0, 0), (0, int(finds.shape[1] == NUM_KINDS - 1))))


def _check(model: NameModel, num_labels: int) -> None:
    counts, history = model.counts, model.history
    model.trees.check(len(FEATURES))
    expected = (len(model.catalogue), NUM_KINDS)
    is_good = (
        len(model.catalogue) == num_labels
        and len(set(counts.words)) == len(counts.words) == len(counts.documents)
        and len(counts.pairs) == len(counts.pair_documents)
        and bool((np.diff(counts.pairs) > 0).all())
        and history.found.shape == history.right.shape == expected
        and bool((history.right >= 0).all() and (history.right <= history.found).all())
    )
    for each in (counts.documents, counts.pair_documents):
        is_good = is_good and bool((each >= 0).all() and (each <= counts.num_documents).all())
    if not is_good:
        raise ValueError(f"{NAMES}: counts of other words or labels than there are")
    model.prepare_matcher()  # which refuses names of other words
