"""How good a model is on a split: its scorers and two baselines, as tables, JSON and a picture."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import block_diag, csr_array, eye_array

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.errors import RequestError
from longtail.models.metrics import Hierarchical, measure_hierarchical
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.results import frame_of, html_table
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.assessment.baselines import (
    NoNameError,
    label_name_ranking,
    nearest_neighbour_ranking,
)
from longtail.training.assessment.per_label import GroupCollector
from longtail.training.assessment.truth import RetiredLabels, UnseenLabels, check_splits, truth_of
from longtail.training.assessment.untrained import LeftOut, find_trained_on
from longtail.training.calibration.reliability import (
    ReliabilityReport,
    draw_reliability,
    report_reliability,
)
from longtail.training.calibration.scored_pairs import NUM_BEST_BLENDED, PairCollector
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset
from longtail.training.data.languages import language_of, name_of
from longtail.training.data.splits import Split
from longtail.training.evaluation.by_frequency import (
    ALL_LABELS,
    FREQUENCY_BINS,
    Evaluation,
    evaluate,
    hierarchical_table,
    label_subsets,
)
from longtail.training.evaluation.plots import can_draw, draw_by_frequency, write_figure
from longtail.training.evaluation.record import Table, markdown_table
from longtail.training.fitted.fitting import AnswerCollector, AnsweredDocuments, MeasuredPart
from longtail.training.fitted.registry import FITTINGS
from longtail.training.runtime.run_log import progress_bar

logger = logging.getLogger(__name__)

NEAREST_NEIGHBOURS = "30-NN tf-idf"
LABEL_NAMES = "label names"
KS = (1, 3, 5, 10)
MAX_K = KS[-1]
"""Labels of a document that the metrics need."""

_LANGUAGE_NOTE = "Languages of at least 5 % of the documents, recognised by common words."
_SCHEME_NOTE = "The labels of each scheme ranked among themselves, on documents that carry one."
_BY_SCORE = RankingOptions()
_JSON, _MARKDOWN = "evaluation.json", "evaluation.md"
_BY_FREQUENCY, _RELIABILITY = "by_frequency.png", "reliability.png"


@dataclass(frozen=True, slots=True)
class Assessment:
    """Rankings of a split's documents, and their metrics.

    Attributes:
        evaluation: All metrics, by scorer.
        rankings: The best labels of each document, by scorer.
        truth: The labels of each document; those that the model lacks after all others.
        training_counts: Training documents of each label.
        reliability: The probabilities' reliability; None where it was not asked for.
        hierarchical: Metrics of labels with all above them; None where no label is below another.
        retired: Labels of the documents that are out of use; None where there are none.
        left_out: Documents that the model was trained on; None where it was not asked.
        unseen: Labels of the documents that the model lacks; None where there are none.
        fitted: What fitted parts of the model are worth, by name of the part.
        answers: Answers of the default scorer; None where nobody needs them.
        languages: Metrics of the documents of each language, by its ISO 639 code; empty where
            fewer than two make 5 % of the documents.
        schemes: Metrics of the labels of each scheme, ranked among themselves, on documents that
            carry one; empty where the model has fewer than two.
    """

    evaluation: Evaluation
    rankings: dict[str, Ranking]
    truth: Float32[csr_array, "document label_or_unseen"]
    training_counts: Int64[np.ndarray, label_or_unseen]
    reliability: ReliabilityReport | None = None
    hierarchical: Hierarchical | None = None
    retired: RetiredLabels | None = None
    left_out: LeftOut | None = None
    unseen: UnseenLabels | None = None
    fitted: Mapping[str, MeasuredPart] = field(default_factory=dict)
    answers: AnsweredDocuments | None = None
    languages: Mapping[str, Evaluation] = field(default_factory=dict)
    schemes: Mapping[str, Evaluation] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics over all labels, as fractions, by scorer and name."""
        scorers = self.evaluation.scorers.items()
        return {scorer: dict(subsets[ALL_LABELS].values) for scorer, subsets in scorers}

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each scorer and subset of the labels.

        Its columns are `scorer`, `labels` (the subset: "all", or how many training documents) and
        the metrics, as fractions; nan where no document has a label of the subset.
        """
        scorers = self.evaluation.scorers.items()
        rows = [(scorer, name, x) for scorer, subsets in scorers for name, x in subsets.items()]
        columns: dict[str, list[object]] = {
            "scorer": [scorer for scorer, _, _ in rows],
            "labels": [name for _, name, _ in rows],
        }
        for metric in next(iter(self.metrics.values())):
            columns[metric] = [subset.values.get(metric, np.nan) for _, _, subset in rows]
        return frame_of(columns)

    def __repr__(self) -> str:
        return f"{self.measured_on}\n{self.evaluation.overall_table()}"

    def _repr_html_(self) -> str:
        return html_table(*self.evaluation.overall_cells(), self.measured_on)

    @property
    def measured_on(self) -> str:
        """The measured documents and the documents left out, in sentences."""
        notes = (str(each or "") for each in (self.retired, self.left_out, self.unseen))
        return " ".join(filter(None, (self.evaluation.measured_on(), *notes)))

    @property
    def group_tables(self) -> list[Table]:
        """Tables with a row for each language, or scheme, and scorer; none without figures."""
        languages = {name_of(language): each for language, each in self.languages.items()}
        return [
            *_tables_by("language", _LANGUAGE_NOTE, languages),
            *_tables_by("scheme", _SCHEME_NOTE, self.schemes),
        ]

    def short_table(self, manifest: Manifest) -> str:
        """Return the main metrics of the model with this manifest, and the documents below."""
        cells = self.evaluation.short_cells(manifest.scorers, manifest.default_scorer)
        return f"{markdown_table(*cells)}\n\n{self.measured_on}"

    def write(self, folder: Path) -> list[Path]:
        """Write evaluation.json, evaluation.md and the pictures, and return their paths.

        The pictures are by_frequency.png, of the probabilities reliability.png, and of fitted parts
        PART.png; without matplotlib (the extra `plots`) there are none, which a warning says.

        Args:
            folder: Where to; made if it is missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tables = [*self.evaluation.tables(), *self.group_tables, *self.evaluation.bin_tables()]
        if self.hierarchical is not None:
            tables.append(hierarchical_table(self.hierarchical))
        if self.reliability is not None:
            tables += self.reliability.tables()
        tables += (table for each in self.fitted.values() for table in each.tables)
        parts = (self.measured_on, *(x.to_markdown() for x in tables))
        paths = [folder / _JSON, folder / _MARKDOWN]
        paths[0].write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8", newline="\n")
        paths[1].write_text("\n\n".join(parts) + "\n", "utf-8", newline="\n")
        if not can_draw():
            return paths
        k = self.evaluation.ks[-1]
        measured = (self.rankings, self.truth, self.training_counts)
        pictures = {_BY_FREQUENCY: draw_by_frequency(*measured, min(5, k), k)}
        if self.reliability is not None:
            pictures[_RELIABILITY] = draw_reliability(self.reliability)
        pictures |= {f"{name}.png": x.draw() for name, x in self.fitted.items() if x.draw}
        for name, picture in pictures.items():
            write_figure(picture, folder / name)
        return [*paths, *(folder / name for name in pictures)]

    def to_json(self) -> dict[str, object]:
        """Return all metrics, and the reliability of the probabilities where it was measured."""
        measured = {
            "retired_labels": self.retired and asdict(self.retired),
            "trained_on": self.left_out and self.left_out.to_json(),
            "unseen_labels": self.unseen and asdict(self.unseen),
            "hierarchical": self.hierarchical,
            "probabilities": self.reliability and self.reliability.to_json(),
            **{name: each.content for name, each in self.fitted.items()},
            "languages": {name: each.to_json() for name, each in self.languages.items()},
            "schemes": {name: each.to_json() for name, each in self.schemes.items()},
        }
        return self.evaluation.to_json() | {name: x for name, x in measured.items() if x}

    def figures_of(self, bundle: Bundle, dataset: Dataset, split_name: str) -> dict[str, object]:
        """Return what a record of this assessment holds: model, data, split, and all metrics."""
        return {
            "model": bundle.manifest.digest,
            "data": dataset.fingerprint,
            "split": split_name,
            **self.to_json(),
        }


def result_names() -> list[str]:
    """Return the names of all files that `Assessment.write` may write."""
    pictures = [f"{name}.png" for name, fitting in FITTINGS.items() if fitting.has_picture]
    return [_JSON, _MARKDOWN, _BY_FREQUENCY, _RELIABILITY, *pictures]


def assess_bundle(
    bundle: Bundle,
    dataset: Dataset,
    split_name: str,
    *,
    baselines: bool = False,
    k: int = MAX_K,
    query: RankingOptions = _BY_SCORE,
    reliability: bool = True,
    answers: bool = False,
) -> Assessment:
    """Load a model, rank a split with it, and measure (see `assess`).

    Documents that the model was trained on are left out (see `find_trained_on`).

    Args:
        bundle: The model.
        dataset: Its labels are matched by their ids; those that the model lacks count as missed.
        split_name: The split to rank.
        baselines: Whether nearest neighbours and label names are measured, too.
        k: Labels that are ranked; the metrics need ten.
        query: As of `assess`.
        reliability: Whether to measure the probabilities, too.
        answers: Whether to keep what the default scorer answers, as where a part is measured by it.
    """
    check_splits(bundle.catalogue, dataset, split_name, has_baselines=baselines)
    left_out = find_trained_on([bundle], dataset, split_name)
    dataset = left_out.view(dataset, split_name)
    predictor = Predictor.of_bundle(bundle, precision="auto")  # as `longtail predict` and `serve`
    found = assess(
        predictor,
        dataset,
        split_name,
        num_training_documents=bundle.manifest.training_document_count,
        tfidf=predictor.parts.sparse.tfidf if baselines else None,
        k=k,
        query=query,
        reliability=reliability,
        thresholds=bundle.manifest.thresholds,
        answers=answers,
        within_bands=True,
    )
    languages = _by_language(
        found, dataset.split(split_name).texts(), bundle.manifest.training_document_count
    )
    return replace(found, left_out=left_out, languages=languages)


def _tables_by(what: str, note: str, measured: Mapping[str, Evaluation]) -> list[Table]:
    rows, header = list[list[str]](), list[str]()
    for name, each in measured.items():
        header, cells = each.overall_cells()
        rows += [[name, f"{each.num_documents:,}", *row] for row in cells]
    return [Table(f"By {what}", note, ([what, "documents", *header], rows))] if rows else []


def _by_language(
    found: Assessment, texts: Iterable[str], num_training_documents: int
) -> dict[str, Evaluation]:
    """Measure the documents of each language that makes enough of them, if there are several."""
    language_of_row = np.array([language_of(text) for text in texts])
    counts = Counter(language_of_row.tolist()).most_common()
    languages = [x for x, count in counts if x and count >= 0.05 * len(language_of_row)]
    rows = {x: np.flatnonzero(language_of_row == x) for x in languages if len(languages) > 1}
    return {
        language: evaluate(
            {name: Ranking(x.labels[kept], x.scores[kept]) for name, x in found.rankings.items()},
            found.truth[kept], found.training_counts, num_training_documents, found.evaluation.ks,
        )
        for language, kept in rows.items()
    }  # fmt: skip


def assess(
    predictor: Predictor,
    dataset: Dataset,
    split_name: str,
    *,
    num_training_documents: int,
    tfidf: TfidfModel | None = None,
    k: int = MAX_K,
    query: RankingOptions = _BY_SCORE,
    reliability: bool = False,
    thresholds: Mapping[str, float] | None = None,
    answers: bool = False,
    within_bands: bool = False,
) -> Assessment:
    """Rank a split with every scorer of a model, and measure.

    Each scorer has its own correction; one that has one is ranked without it too, as another row.

    Args:
        predictor: The model.
        dataset: Its labels are matched by their ids; those that the model lacks count as missed.
        split_name: The split to rank.
        num_training_documents: Documents that the model was trained on; propensities need it.
        tfidf: What the model makes of texts. Given, baselines are ranked too: 30 nearest neighbours
            in these features, and matching label names, if these have words; the dataset must
            have its training split then.
        k: Labels that are ranked; the metrics need ten.
        query: What all scorers rank by (see `RankingOptions.ranked_by`); it is in their names.
            Scorers that can't are left out.
        reliability: Whether to measure the probabilities, too, which are those without a tail dial.
        thresholds: Probability from which a scorer's labels count as answered, for micro-F1.
        answers: Whether to keep what the default scorer answers; it is kept where `reliability` is
            measured and a fitted part is measured by it, too.
        within_bands: Whether each band's labels are ranked among themselves, too.
    """
    rows = rows_of(predictor, replace(query, k=min(k, len(predictor.catalogue))))
    split = dataset.split(split_name)
    check_splits(predictor.catalogue, dataset, split_name, has_baselines=tfidf is not None)
    truth, unseen = truth_of(predictor.catalogue, dataset, split.scan().labels)
    retired = RetiredLabels.of(predictor.catalogue, dataset, split.scan().labels)
    num_labels = len(predictor.catalogue)
    k = min(k, num_labels)
    pairs = PairCollector(predictor, truth[:, :num_labels]) if reliability else None
    batches = split_batches(predictor, split, split_name)
    scorer = predictor.scorers.default
    fitted = {
        fitting: value
        for fitting in FITTINGS.values()
        if reliability and fitting.reads_answers(value := fitting.part.of(predictor.parts), scorer)
    }
    answered = None
    if answers or fitted:
        answered = AnswerCollector(predictor, scorer, truth, num_training_documents)
        batches = answered.watch(batches)
    watched = batches if pairs is None else pairs.watch(batches)
    counts = np.pad(predictor.catalogue.training_counts, (0, truth.shape[1] - num_labels))
    groups = label_subsets(counts) if within_bands else {}
    bands = {name: groups[name] for name in groups if name in FREQUENCY_BINS}
    of_schemes = predictor.catalogue.rows_of_schemes if within_bands else {}
    masks = {name: np.isin(np.arange(len(counts)), own) for name, own in of_schemes.items()}
    schemes = {x: own for x, own in masks.items() if len(masks) > 1 and truth[:, own].nnz}
    within, in_schemes = (GroupCollector(predictor, rows, truth, x) for x in (bands, schemes))
    watched = in_schemes.watch(within.watch(watched))
    is_plain = pairs is not None and not query.ranked_by and k <= NUM_BEST_BLENDED
    collected = pairs if is_plain else None
    rankings = rank_batches(predictor, watched, rows, collected)
    if tfidf is not None:
        rankings |= _baselines(predictor, dataset, split_name, k, tfidf)
    ks = [each for each in KS if each <= k]
    trusted = None
    if pairs is not None:
        num_missed = 0 if unseen is None else unseen.num_missed
        trusted = report_reliability(predictor, pairs.pairs, thresholds, num_missed)
    measured_on = documents_of(dataset, split_name)
    return Assessment(
        evaluation=evaluate(rankings, truth, counts, num_training_documents, ks, within.rankings),
        rankings=rankings,
        truth=truth,
        training_counts=counts,
        reliability=trusted,
        hierarchical=_hierarchical(predictor, rankings, truth, ks),
        retired=retired,
        unseen=unseen,
        fitted={
            fitting.part.name: fitting.measured(value, scorer, answered.documents, measured_on)
            for fitting, value in fitted.items()
            if answered is not None
        },
        answers=None if answered is None else answered.documents,
        schemes={
            name: _of_scheme(
                in_schemes.rankings[name], is_in, truth, counts, num_training_documents
            )
            for name, is_in in schemes.items()
        },
    )


def _of_scheme(
    rankings: Mapping[str, Ranking],
    is_in: Bool[np.ndarray, label_or_unseen],
    truth: Float32[csr_array, "document label_or_unseen"],
    counts: Int64[np.ndarray, label_or_unseen],
    num_training_documents: int,
) -> Evaluation:
    """Measure the labels of a scheme, ranked among themselves, on documents that carry one."""
    own = truth[:, is_in]
    documents = np.flatnonzero(np.diff(own.indptr))
    rows = np.cumsum(is_in) - 1
    within = {
        name: Ranking(
            np.where(x.labels == NO_LABEL, NO_LABEL, rows[x.labels])[documents], x.scores[documents]
        )
        for name, x in rankings.items()
    }
    return evaluate(within, own[documents], counts[is_in], num_training_documents, KS)


def _hierarchical(
    predictor: Predictor,
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label_or_unseen"],
    ks: Sequence[int],
) -> Hierarchical | None:
    if not predictor.catalogue.has_hierarchy:
        return None
    ancestors = predictor.scorers.selector.hierarchy.ancestors()
    alone = eye_array(truth.shape[1] - ancestors.shape[0], dtype=np.float32)
    whole = csr_array(block_diag([ancestors, alone]))
    return measure_hierarchical(rankings, truth, whole, ks)


def documents_of(dataset: Dataset, split_name: str) -> str:
    """Return what names the documents of a split: fingerprint of the corpus, and the split."""
    return f"{dataset.fingerprint} {split_name}"


def split_batches(
    predictor: Predictor, split: Split, name: str, *, by_all: bool = True
) -> Iterator[TextBatch]:
    """Give the documents of a split, ready to be ranked, some at a time, with a progress bar.

    Args:
        predictor: The model.
        split: The documents.
        name: The name of the split, for the bar.
        by_all: Whether every scorer ranks them (see `Predictor.shared`).

    Yields:
        The next documents, in order.
    """
    with progress_bar(total=len(split), desc=name, unit="doc") as bar:
        for chunk in chunks(split.texts()):
            batch = predictor.read(chunk, bar.update)
            yield from predictor.shared(batch) if by_all else [batch]


def rank_batches(
    predictor: Predictor,
    batches: Iterable[TextBatch],
    rows: Mapping[str, RankingOptions],
    collected: PairCollector | None,
) -> dict[str, Ranking]:
    """Return the rankings of all rows: collected ones, and others that are made here."""
    there = () if collected is None else collected.scorers
    parts: dict[str, list[Ranking]] = {name: [] for name in rows if name not in there}
    for batch in batches:
        for name, rankings in parts.items():
            rankings.append(predictor.rank(batch, rows[name]))
    ranked = {} if collected is None else collected.rankings
    return {
        name: (ranked[name] if name in ranked else Ranking.joined(parts[name])).first(options.k)
        for name, options in rows.items()
    }


def rows_of(predictor: Predictor, query: RankingOptions) -> dict[str, RankingOptions]:
    """Return what each row of the tables is ranked by, by its name; a scorer a row, and more.

    Scorers that can't rank by it are left out, which a warning says.
    """
    rows: dict[str, RankingOptions] = {}
    lacking: list[str] = []
    refusal = None
    suffix = f", {query.ranked_by}" if query.ranked_by else ""
    for scorer in predictor.scorers.names:
        options = replace(query, scorer=scorer)
        try:
            predictor.scorers.resolve(options)
        except RequestError as error:
            lacking.append(scorer)
            refusal = error
            continue
        rows[scorer + suffix] = options
        has_scores = bool(query.tail_dial) or not query.ranked_by  # not gains
        if has_scores and predictor.scorers.correction_of(scorer) != "none":
            rows[f"{scorer}, uncorrected{suffix}"] = replace(options, correction="none")
    if refusal is not None and not rows:
        raise refusal
    if lacking:
        logger.warning("left out, as they lack the %s: %s", query.ranked_by, ", ".join(lacking))
    return rows


def _baselines(
    predictor: Predictor, dataset: Dataset, split_name: str, k: int, tfidf: TfidfModel
) -> dict[str, Ranking]:
    training, split = dataset.split("train"), dataset.split(split_name)
    catalogue = predictor.catalogue
    labels, _ = truth_of(catalogue, dataset, training.scan().labels)
    neighbours = nearest_neighbour_ranking(
        tfidf.transform(training.texts()),
        labels[:, : len(catalogue)],  # none that the model lacks, as for the scorers
        tfidf.transform(split.texts()),
        k,
    )
    found = {NEAREST_NEIGHBOURS: neighbours}
    names = [f"{label.name} {label.description}".strip() for label in catalogue]
    try:
        found[LABEL_NAMES] = label_name_ranking(list(split.texts()), names, k, training.texts())
    except NoNameError as error:
        logger.warning("the baseline %r is left out: %s", LABEL_NAMES, error)
    return found
