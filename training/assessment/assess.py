"""How good a model is on a split: its scorers and two baselines, as tables, JSON and a picture."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from tqdm import tqdm

from models.bundle.bundle import Bundle
from models.errors import DataError, RequestError
from models.labels.catalogue import LabelCatalogue
from models.names import FEATURES
from models.parts.batches import FeatureBatch, TextBatch
from models.predict.predictor import MOST_TAIL_DIAL, Predictor
from models.ranking.top_k import Ranking
from models.scorers.tfidf import TfidfModel
from training.assessment.baselines import NoNameError, label_name_ranking, nearest_neighbour_ranking
from training.calibration.reliability import ReliabilityReport, draw_reliability, report_reliability
from training.calibration.scored_pairs import PairCollector
from training.data.chunks import _CHUNK, chunks
from training.data.dataset import Dataset
from training.evaluation.by_frequency import Evaluation, evaluate
from training.evaluation.plots import draw_by_frequency, write_figure
from training.sparse.features import check_documents, split_features

logger = logging.getLogger(__name__)

NEAREST_NEIGHBOURS = "30-NN tf-idf"
NEAREST_BY_FEATURES = "30-NN features"
LABEL_NAMES = "label names"
_KS = (1, 3, 5, 10)
MOST_PLACES = _KS[-1]
"""Places that the metrics need."""

RESULT_NAMES = ("evaluation.json", "evaluation.md", "by_frequency.png", "reliability.png")
"""Of the files that `Assessment.write` writes."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Rankings of a split's documents, and what they are worth.

    Attributes:
        evaluation: All metrics, by scorer.
        rankings: The best labels of each document, by scorer.
        truth: The labels of each document.
        training_counts: Training documents of each label.
        reliability: Of the probabilities; None where it was not asked for.
    """

    evaluation: Evaluation
    rankings: dict[str, Ranking]
    truth: Float32[csr_array, "document label"]
    training_counts: Int64[np.ndarray, label]
    reliability: ReliabilityReport | None = None

    def write(self, folder: Path) -> list[Path]:
        """Write evaluation.json, evaluation.md and the pictures, and return their paths.

        The pictures are by_frequency.png and, of the probabilities, reliability.png.
        """
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in RESULT_NAMES[:3]]
        content, text = self.evaluation.to_json(), self.evaluation.to_markdown()
        if self.reliability is not None:
            content |= {"probabilities": self.reliability.to_json()}
            text += f"\n## Probabilities\n\n{self.reliability.to_markdown()}\n"
            paths.append(folder / RESULT_NAMES[3])
            write_figure(draw_reliability(self.reliability), paths[-1])
        paths[0].write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        paths[1].write_text(text + "\n", "utf-8")
        num_places = self.evaluation.ks[-1]
        picture = draw_by_frequency(
            self.rankings,
            self.truth,
            self.training_counts,
            k=min(5, num_places),
            recall_k=num_places,
        )
        write_figure(picture, paths[2])
        return paths


def assess(
    predictor: Predictor,
    dataset: Dataset,
    split_name: str,
    *,
    num_training_documents: int,
    tfidf: TfidfModel | None = None,
    num_places: int = MOST_PLACES,
    tail_dial: float = 0.0,
    reliability: bool = False,
) -> Assessment:
    """Rank a split with every scorer of a model, and measure.

    Each scorer has its own correction; one that has one is ranked without it too, as another row.

    Args:
        predictor: The model; it reads what the dataset holds, texts or features.
        dataset: Its labels must be known to the model, by their ids.
        split_name: The split to rank.
        num_training_documents: Documents that the model was trained on; propensities need it.
        tfidf: What the model makes of texts. Given, baselines are ranked too: 30 nearest neighbours
            in these features, and, of texts, matching label names, if these have words; the
            dataset must have its training split then.
        num_places: Labels that are ranked; the metrics need ten.
        tail_dial: Of all scorers (see `Predictor.rank`); above 0, it stands in their names.
        reliability: Whether to measure the probabilities, too, which are those without a tail dial.

    Raises:
        RequestError: The tail dial is out of its range.
        DataError: The model reads other documents than these; the split is missing, has broken
            lines, or has labels unknown to the model; or the baselines lack their training split.
    """
    check_documents(dataset, predictor.input, predictor.feature_names)
    check_tail_dial(tail_dial)
    split = dataset.split(split_name)
    _check_splits(predictor.catalogue, dataset, split_name, has_baselines=tfidf is not None)
    truth = in_order_of(predictor.catalogue, dataset, split.scan().labels)
    k = min(num_places, len(predictor.catalogue))
    pairs = PairCollector(predictor, truth) if reliability else None
    batches = split_batches(predictor, dataset, split_name, truth.shape[0])
    watched = batches if pairs is None else pairs.watch(batches)
    rankings = _rank_batches(predictor, watched, k, tail_dial)
    if tfidf is not None:
        rankings |= _baselines(predictor, dataset, split_name, k, tfidf)
    counts = predictor.catalogue.training_counts
    ks = [each for each in _KS if each <= k]
    return Assessment(
        evaluation=evaluate(rankings, truth, counts, num_training_documents, ks),
        rankings=rankings,
        truth=truth,
        training_counts=counts,
        reliability=None if pairs is None else report_reliability(predictor, pairs.pairs),
    )


def check_assessable(
    bundle: Bundle, dataset: Dataset, split_name: str, *, has_baselines: bool
) -> None:
    """Refuse what `assess` would refuse, before the model is loaded.

    Args:
        bundle: The model.
        dataset: What is to be ranked.
        split_name: Its split.
        has_baselines: Whether the baselines are ranked, which read the training split.

    Raises:
        DataError: The split or the training split is missing or has broken lines, or the corpus
            has labels unknown to the model, or other documents than it reads.
    """
    if dataset.input != bundle.manifest.input:
        check_documents(dataset, bundle.manifest.input, ())
    _check_splits(bundle.catalogue, dataset, split_name, has_baselines=has_baselines)


def check_tail_dial(tail_dial: float) -> None:
    """Refuse a tail dial out of its range.

    Raises:
        RequestError: It is.
    """
    if not 0 <= tail_dial <= MOST_TAIL_DIAL:
        raise RequestError(
            f"tail dial: got {tail_dial}, expected a number from 0 to {MOST_TAIL_DIAL:g}"
        )


def _check_splits(
    catalogue: LabelCatalogue, dataset: Dataset, split_name: str, *, has_baselines: bool
) -> None:
    splits = [dataset.split(split_name)]
    if has_baselines and "train" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no training documents for the baselines; evaluate with "
            "--no-baselines, or on the whole corpus"
        )
    if has_baselines:
        splits.append(dataset.split("train"))
    for split in splits:  # what a scan finds is kept, so none is read twice
        in_order_of(catalogue, dataset, split.scan().labels)


def split_batches(
    predictor: Predictor, dataset: Dataset, split_name: str, num_documents: int
) -> Iterator[TextBatch | FeatureBatch]:
    """Give the documents of a split, ready to be ranked, some at a time, with a progress bar.

    Args:
        predictor: The model; it reads what the dataset holds.
        dataset: The corpus.
        split_name: One of its splits.
        num_documents: How many it has.

    Yields:
        The next documents, in order.
    """
    split = dataset.split(split_name)
    if dataset.input == FEATURES:
        yield from feature_batches(predictor, split.features(), desc=split_name)
    else:
        yield from text_batches(predictor, split.texts(), num_documents, desc=split_name)


def rank_texts(
    predictor: Predictor,
    texts: Iterable[str],
    num_texts: int,
    k: int,
    *,
    desc: str,
    dial: float = 0.0,
) -> dict[str, Ranking]:
    """Return the best k labels of every text by every scorer, with a progress bar.

    Args:
        predictor: The model.
        texts: Read a chunk at a time.
        num_texts: How many there are.
        k: Labels wanted a text.
        desc: What the progress bar says.
        dial: The tail dial.
    """
    return _rank_batches(predictor, text_batches(predictor, texts, num_texts, desc=desc), k, dial)


def text_batches(
    predictor: Predictor, texts: Iterable[str], num_texts: int, *, desc: str
) -> Iterator[TextBatch]:
    """Give texts ready to be ranked, with a progress bar (see `rank_texts`).

    Yields:
        The next texts.
    """
    with tqdm(total=num_texts, desc=desc, unit="doc", mininterval=1.0) as bar:
        for chunk in chunks(texts):
            yield predictor.read(chunk, bar.update)


def rank_features(
    predictor: Predictor,
    features: Float32[csr_array, "document feature"],
    k: int,
    *,
    desc: str,
    dial: float = 0.0,
) -> dict[str, Ranking]:
    """Return the best k labels of every document by every scorer, with a progress bar.

    Args:
        predictor: The model; it reads features.
        features: As the corpus has them.
        k: Labels wanted a document.
        desc: What the progress bar says.
        dial: The tail dial.
    """
    return _rank_batches(predictor, feature_batches(predictor, features, desc=desc), k, dial)


def feature_batches(
    predictor: Predictor, features: Float32[csr_array, "document feature"], *, desc: str
) -> Iterator[FeatureBatch]:
    """Give documents ready to be ranked, with a progress bar (see `rank_features`).

    Yields:
        The next documents.
    """
    starts = range(0, features.shape[0], _CHUNK)
    for start in tqdm(starts, desc=desc, unit="chunk", mininterval=1.0):
        yield predictor.read_features(features[start : start + _CHUNK])


def _rank_batches(
    predictor: Predictor, batches: Iterable[TextBatch | FeatureBatch], k: int, dial: float
) -> dict[str, Ranking]:
    asked = _rows(predictor, dial)
    found: dict[str, list[Ranking]] = {name: [] for name in asked}
    for batch in batches:
        for name, (scorer, correction) in asked.items():
            found[name].append(predictor.rank(batch, k, scorer, correction, dial))
    return {
        name: Ranking(
            labels=np.concatenate([ranking.labels for ranking in rankings]),
            scores=np.concatenate([ranking.scores for ranking in rankings]),
        )
        for name, rankings in found.items()
    }


def _rows(predictor: Predictor, dial: float) -> dict[str, tuple[str, str | None]]:
    """Return the scorer and the correction of each row of the tables, by its name."""
    rows: dict[str, tuple[str, str | None]] = {}
    suffix = f", tail dial {dial:g}" if dial else ""
    for scorer in predictor.scorers:
        rows[scorer + suffix] = (scorer, None)
        if predictor.correction_of(scorer) != "none":
            rows[f"{scorer}, uncorrected{suffix}"] = (scorer, "none")
    return rows


def _baselines(
    predictor: Predictor, dataset: Dataset, split_name: str, k: int, tfidf: TfidfModel
) -> dict[str, Ranking]:
    training, split = dataset.split("train"), dataset.split(split_name)
    neighbours = nearest_neighbour_ranking(
        split_features(tfidf, predictor.input, dataset, "train"),
        in_order_of(predictor.catalogue, dataset, training.scan().labels),
        split_features(tfidf, predictor.input, dataset, split_name),
        k,
    )
    if dataset.input == FEATURES:
        return {NEAREST_BY_FEATURES: neighbours}
    found = {NEAREST_NEIGHBOURS: neighbours}
    names = [f"{label.name} {label.description}".strip() for label in predictor.catalogue]
    try:
        found[LABEL_NAMES] = label_name_ranking(list(split.texts()), names, k, training.texts())
    except NoNameError as error:
        logger.warning("the baseline %r is left out: %s", LABEL_NAMES, error)
    return found


def in_order_of(
    catalogue: LabelCatalogue, dataset: Dataset, truth: Float32[csr_array, "document listed"]
) -> Float32[csr_array, "document label"]:
    """Return the label matrix with the columns of the model's catalogue.

    Raises:
        DataError: The dataset has labels that the model doesn't know.
    """
    ids = [label.id for label in dataset.labels]
    if ids == [label.id for label in catalogue]:
        return truth
    row_of = {label.id: row for row, label in enumerate(catalogue)}
    if unknown := [name for name in ids if name not in row_of]:
        raise DataError(
            f"{dataset.folder}: {len(unknown)} of its labels are unknown to the model, the first "
            f"with id {unknown[0]!r}; evaluate on data with the labels that it was trained with"
        )
    pairs = truth.tocoo()
    columns = np.array([row_of[name] for name in ids])[pairs.coords[1]]
    shape = (truth.shape[0], len(catalogue))
    return csr_array((pairs.data, (pairs.coords[0], columns)), shape=shape)
