"""Longtail as an estimator of scikit-learn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from longtail.models.bundle.registry import Registry
from longtail.models.errors import RequestError
from longtail.models.interface.given_texts import texts_of
from longtail.models.interface.model import LoadedModel
from longtail.models.predict.trial import check_answers
from longtail.models.results import Prediction
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.estimators.corpus import (
    LabelTexts,
    by_id,
    kept_corpus,
    write_documents,
    write_labels,
)
from longtail.training.estimators.model import OwnFolder, copied, files_of, restored, settings_of
from longtail.training.estimators.targets import (
    InvalidInputError,
    Targets,
    is_lists,
    kept_labels,
    targets_of,
    truth_for,
)
from longtail.training.pipeline.train import Run, train
from longtail.training.runtime.run_log import progress_shown

_FALLBACK_THRESHOLD = 0.5
_MORE_LABELS = 4
"""Times as many labels are asked for where all those of a text pass the threshold."""


class LongtailClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tags texts with the right few of very many labels.

    Labels stay sparse from `fit` to `predict_proba`. What is learned is a bundle, as `longtail
    train` publishes it: `bundle_`, in safetensors and JSON.

    Attributes:
        classes_: What the columns stand for, of shape (number of classes,): the numbers of the
            columns of the matrix in `fit`, or `classes`, or the labels, sorted.
        bundle_: What was learned.
    """

    def __init__(
        self,
        *,
        k: int = 10,
        scorer: str | None = None,
        encoder: str | None = None,
        config: str | Path | Mapping[str, Any] | None = None,
        classes: Any = None,
        label_texts: LabelTexts | None = None,
        random_state: Any = None,
        work: str | Path | None = None,
        registry: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        """Keep the parameters; `fit` checks them.

        Args:
            k: Labels of a text that get a score or probability.
            scorer: By which texts are labelled; None: the one that was best on held-out documents.
            encoder: "packaged", a folder, or an id on the model hub; None: without an encoder, in
                seconds to minutes.
            config: YAML file of a run, or its top-level keys, such as `{"scorers": ["sparse"]}`.
            classes: What the columns of a matrix of labels stand for; of lists of labels, all
                labels in the order of the columns.
            label_texts: By class, its name, or the fields of a label file (name, description,
                alternative_names, parents). Labels that are called by words are found by them,
                also those that no training document carries.
            random_state: Seed of the run, an int or a `numpy.random.RandomState`; None: that of the
                configuration, so that two fits give the same bundle.
            work: Folder for the work of all fits, each of which resumes there; None: a temporary
                one.
            registry: Folder of a registry in which every fit publishes a version; None: none.
            verbose: Whether `fit` shows progress bars.
        """
        self.k = k
        self.scorer = scorer
        self.encoder = encoder
        self.config = config
        self.classes = classes
        self.label_texts = label_texts
        self.random_state = random_state
        self.work = work
        self.registry = registry
        self.verbose = verbose

    def fit(self, texts: Any, y: Any) -> LongtailClassifier:
        """Train a model.

        Args:
            texts: A list, array, series or iterator of texts, or a data frame with the column
                `text`, or with `title` and `content`.
            y: Their labels: a sparse or dense matrix of 0 and 1 of shape (texts, classes), or a
                list of labels for each text, also from an iterator.

        Raises:
            InvalidInputError: A text, label or parameter is not as it has to be; a `ValueError`.
            LongtailError: As `longtail train` does.
        """
        self._check_parameters()
        found = _checked(texts)
        targets = self._targets(y, len(found))
        has_texts = self.label_texts is not None or _are_words(targets.classes)
        settings = settings_of(
            self.config, self.encoder, self.random_state, has_label_texts=has_texts
        )
        home, scratch = OwnFolder(), OwnFolder()
        work = scratch.path if self.work is None else Path(self.work)
        registry = Registry(home.path / "registry" if self.registry is None else self.registry)
        try:
            write = partial(self._write, texts=found, targets=targets)
            corpus = kept_corpus(work, write, "the documents")
            run = Run(settings, corpus, work / f"run-{_digest_of(settings, corpus)[:16]}")
            with progress_shown(self.verbose):
                bundle = registry.open(train(run, registry))
        finally:
            scratch.remove()
        self._home = home
        self.classes_ = targets.classes
        self.bundle_ = bundle
        self._model: LoadedModel | None = None
        return self

    def predict(self, texts: Any) -> csr_array:
        """Return the labels that pass the threshold.

        The threshold is the probability that gave the best micro-F1 on held-out documents; 0.5
        where none was found; and where the scorer gives no probabilities (as after a fit on fewer
        than 200 documents), the best label of each text is taken.

        Args:
            texts: As for `fit`.

        Returns:
            Ones of shape (texts, classes), int64.

        Raises:
            InvalidInputError: A text can't be labelled.
        """
        model, scorer = self._loaded(), self._scorer
        found = _checked(texts)
        if model.predictor.scorers.gives_probabilities(scorer):
            manifest = self.bundle_.manifest
            threshold = manifest.thresholds.get(scorer, _FALLBACK_THRESHOLD)
            predictions = self._passing(model, found, self._num_best, threshold)
        else:
            predictions = list(model.predict(found, k=1, scorer=scorer))
        return self._matrix([[(x.index, 1) for x in each.labels] for each in predictions], np.int64)

    def predict_proba(self, texts: Any) -> csr_array:
        """Return the probabilities of the k best labels of each text.

        Args:
            texts: As for `fit`.

        Returns:
            Calibrated on held-out documents, of shape (texts, classes), float64, to the bit those
            of `longtail predict`. What is not stored is not among the k best.

        Raises:
            InvalidInputError: A text can't be labelled, or the scorer gives no probabilities.
        """
        model, scorer = self._loaded(), self._scorer
        if not model.predictor.scorers.gives_probabilities(scorer):
            raise InvalidInputError(
                f"scorer {scorer!r} gives no probabilities: it was not calibrated, as there were "
                "no held-out documents (fewer than 200 in all), or none with right and wrong ones "
                "(where all carry the same); use decision_function"
            )
        rows = [
            [(label.index, label.probability) for label in each.labels]
            for each in model.predict(_checked(texts), k=self._num_best, scorer=scorer)
        ]
        return self._matrix(rows, np.float64)

    def decision_function(self, texts: Any) -> csr_array:
        """Return the scores of the k best labels of each text.

        Args:
            texts: As for `fit`.

        Returns:
            Of shape (texts, classes), float32. Only the stored scores count, which may be below 0:
            a label that is not stored is below them all.

        Raises:
            InvalidInputError: A text can't be labelled.
        """
        model = self._loaded()
        predictions = model.predict(_checked(texts), k=self._num_best, scorer=self._scorer)
        rows = [[(label.index, label.score) for label in each.labels] for each in predictions]
        return self._matrix(rows, np.float32)

    def score(self, texts: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of texts whose labels are predicted exactly (subset accuracy).

        Few are with thousands of labels: give `scoring=longtail.precision_at_k(5)` instead.

        Args:
            texts: As for `fit`.
            y: Their labels, as for `fit`; a label that is no class is always missed.
            sample_weight: Weight of each text.

        Raises:
            InvalidInputError: A text can't be labelled, or the labels have other classes.
        """
        truth = truth_for(y, self.classes_)
        predicted = self.predict(texts)
        predicted.resize(predicted.shape[0], truth.shape[1])
        differing = csr_array(truth - predicted)
        differing.eliminate_zeros()
        is_right = np.diff(differing.indptr) == 0
        return float(np.average(is_right, weights=sample_weight))

    def save(self, folder: str | Path) -> int:
        """Publish the bundle in the registry in a folder, and return its version.

        `longtail serve --registry FOLDER` serves it, `longtail.load(FOLDER)` loads it as a model,
        and `LongtailClassifier.load(FOLDER)` as an estimator.

        Args:
            folder: The registry's folder; made where there is none.

        Raises:
            ConfigError: The folder can't be written to, or holds something else.
        """
        check_is_fitted(self, "bundle_")
        registry = Registry(Path(folder))
        registry.check_writable()
        return registry.publish(
            lambda target: copied(self.bundle_, target), action="save", check=check_answers
        )

    @classmethod
    def load(
        cls, folder: str | Path, version: int | str = "current", **parameters: Any
    ) -> LongtailClassifier:
        """Return a fitted estimator of a version that `save` or `longtail train` published.

        Args:
            folder: The registry's folder.
            version: Its number, or "current".
            **parameters: The estimator's parameters, such as `k`; they are not saved.

        Returns:
            Its `classes_` are the ids of the labels, as text.

        Raises:
            BundleNotFoundError: There is no such version.
            BundleCorruptError: The bundle is not as it was written.
        """
        found = cls(**parameters)
        found.bundle_ = Registry(Path(folder)).open(version)
        found.classes_ = np.array([label.id for label in found.bundle_.catalogue], dtype=object)
        found._model = None
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.one_d_labels = False
        tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the files of the bundle, and nothing that is loaded from them."""
        state = dict(super().__getstate__())
        for name in ("_home", "_model"):
            state.pop(name, None)
        if "bundle_" in state:
            state["bundle_"] = files_of(self.bundle_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state, and write the files of its bundle to a temporary folder."""
        state = dict(state)
        if "bundle_" in state:
            state["_home"] = OwnFolder()
            state["bundle_"] = restored(state["bundle_"], state["_home"].path)
            state["_model"] = None
        super().__setstate__(state)

    @property
    def _scorer(self) -> str:
        check_is_fitted(self, "bundle_")
        return self.bundle_.manifest.default_scorer if self.scorer is None else self.scorer

    @property
    def _num_best(self) -> int:
        return min(self.k, len(self.classes_))

    def _check_parameters(self) -> None:
        if not isinstance(self.k, int | np.integer) or isinstance(self.k, bool) or self.k < 1:
            raise InvalidInputError(f"k is {self.k!r}; expected a whole number of at least 1")

    def _targets(self, y: Any, num_texts: int) -> Targets:
        """Return the labels, with texts of labels for known classes only."""
        if y is None:
            raise InvalidInputError(
                "y is None; this estimator requires y to be passed: the labels of each text"
            )
        y, named = kept_labels(y), by_id(self.label_texts)
        targets = targets_of(y, self.classes, named if is_lists(y) else ())
        num_documents = targets.truth.shape[0]
        if num_documents != num_texts:
            raise InvalidInputError(
                f"got {num_texts} texts and the labels of {num_documents}; expected as many, and "
                "of an iterator what no one has read before"
            )
        if unknown := sorted(named.keys() - set(targets.ids)):
            raise InvalidInputError(
                f"label_texts: {unknown[0]!r} is not among the classes; give it to classes, too"
            )
        return targets

    def _write(self, folder: Path, texts: Sequence[str], targets: Targets) -> None:
        write_labels(folder / "labels.jsonl", targets.ids, by_id(self.label_texts))
        write_documents(folder / "train.jsonl", texts, targets.label_ids())

    def _loaded(self) -> LoadedModel:
        check_is_fitted(self, "bundle_")
        if self._model is None:
            # The precision of `longtail predict`, so that answers are equal to the bit.
            self._model = LoadedModel(self.bundle_, precision="auto")
        return self._model

    def _passing(
        self, model: LoadedModel, texts: Sequence[str], k: int, threshold: float
    ) -> list[Prediction]:
        """Return all labels that pass the threshold, which may be more than k."""
        found = list(model.predict(texts, k=k, scorer=self._scorer, threshold=threshold))
        full = [row for row, each in enumerate(found) if len(each.labels) == k]
        if full and k < len(self.classes_):
            more = min(_MORE_LABELS * k, len(self.classes_))
            asked = [texts[row] for row in full]
            for row, each in zip(full, self._passing(model, asked, more, threshold), strict=True):
                found[row] = each
        return found

    def _matrix(self, rows: list[list[tuple[int, Any]]], dtype: Any) -> csr_array:
        """Return rows of columns and values as a matrix; a value of 0 is stored, too."""
        starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum([len(row) for row in rows], out=starts[1:])
        pairs = [pair for row in rows for pair in sorted(row)]
        columns = np.array([column for column, _ in pairs], dtype=np.int32)
        values = np.array([value for _, value in pairs], dtype=dtype)
        return csr_array((values, columns, starts), shape=(len(rows), len(self.classes_)))


def _checked(texts: Any) -> Sequence[str]:
    try:
        return texts_of(texts)
    except RequestError as error:
        raise InvalidInputError(str(error)) from error


def _are_words(classes: np.ndarray) -> bool:
    return all(isinstance(each, str) for each in classes.tolist())


def _digest_of(settings: TrainingConfig, corpus: Dataset) -> str:
    """Return what tells a run from others: another corpus or configuration has another digest."""
    content = json.dumps([settings.settings_used, corpus.fingerprint], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
