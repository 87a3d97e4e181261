"""Whether an encoder pays on a corpus: asked of a sample, before all documents are encoded."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.kinds.registry import without_encoder
from longtail.models.names import RETRIEVAL
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.training.calibration.scored_pairs import spread_rows
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.documents import TrainingDocuments
from longtail.training.data.splits import Split
from longtail.training.pipeline.dense import finish_dense, read_training_texts
from longtail.training.pipeline.dev_split import CONFIDENCE_Z, DevSplit
from longtail.training.pipeline.encoder_free import EncoderFree
from longtail.training.pipeline.encoder_start import DenseStart
from longtail.training.runtime.kept import kept
from longtail.training.runtime.run_log import stage_cost

logger = logging.getLogger(__name__)

_MOST_DEV = 2000
_SHARE, _LEAST_SHARE = 0.1, 0.05
"""Share of the documents that is encoded with the dev documents, and at least without them."""
_NUM_TIMED = 16


class Trial(NamedTuple):
    """What an encoder adds.

    Attributes:
        gain: nDCG@5 on dev of a blend with the encoder, less that of one without, as a fraction.
        error: Its standard error over documents.
        cost: Processor time of an answer with the encoder, as a multiple of one without.
    """

    gain: float
    error: float
    cost: float

    @property
    def pays(self) -> bool:
        """Whether the gain is beyond chance."""
        return self.gain > CONFIDENCE_Z * self.error


def encoder_pays(
    start: DenseStart,
    config: TrainingConfig,
    documents: TrainingDocuments,
    found: EncoderFree,
    folder: Path,
) -> bool:
    """Return whether the encoder, as it comes, ranks dev better beyond chance; the log says it.

    The labels, a part of dev and of the training documents are encoded.

    Args:
        start: The encoder.
        config: The run's configuration.
        documents: Those of the run, with some to choose by.
        found: What is trained without the encoder.
        folder: The run's folder, which keeps the answer.
    """
    with stage_cost(folder, "encoder trial"):
        trial = kept(
            folder / "encoder-trial.json",
            lambda: _tried(start, config, documents, found, folder),
            lambda path: Trial(**read_json(path)),
            lambda path, trial: write_json_durably(path, trial._asdict()),
        )
    logger.warning(
        "encoder: it adds %.2f (standard error %.2f) points of nDCG@5 on dev in a trial on a "
        "sample, and an answer costs %.0f times as much", 100 * trial.gain, 100 * trial.error,
        trial.cost,
    )  # fmt: skip
    if not trial.pays:
        logger.warning(
            "encoder: that may be chance, so it is left out; 'encoder: packaged' takes it"
        )
    return trial.pays


def _tried(
    start: DenseStart,
    config: TrainingConfig,
    documents: TrainingDocuments,
    found: EncoderFree,
    folder: Path,
) -> Trial:
    train, dev = documents.train, documents.dev
    assert dev is not None  # see `encoder_pays`
    dev, _ = _sample(dev, _MOST_DEV)
    wanted = max(_SHARE * len(train) - len(dev), _LEAST_SHARE * len(train), 1)
    sample, rows = _sample(train, int(wanted))
    texts = read_training_texts(start, config, sample.texts(), found.catalogue, found.truth[rows])
    ids = [document.id for document in sample]
    dense, models = finish_dense(start, texts, ids, config, folder, "-trial")
    parts = ModelParts(found.catalogue, found.sparse, dense, found.models | models)
    ranked = DevSplit(dev, parts, len(train), folder / "encoder-trial", start.machine.precision)
    gain, members = ranked.gain(without_encoder(), [RETRIEVAL, *models])
    few = documents.sample[:_NUM_TIMED]
    added, before = (_seconds(ranked.predictor, few, x) for x in ([RETRIEVAL, *models], members))
    return Trial(gain.mean, gain.error, 1 + added / before)


def _sample(split: Split, most: int) -> tuple[Split, np.ndarray]:
    rows = spread_rows(len(split), most)
    is_in = np.zeros(len(split), dtype=np.bool_)
    is_in[rows] = True
    return split.part(is_in), rows


def _seconds(predictor: Predictor, texts: Sequence[str], scorers: Sequence[str]) -> float:
    """Return the processor time of answers to texts, one by one."""
    found = 0.0
    k = min(10, len(predictor.catalogue))
    for text in (texts[0], *texts):  # the first prepares
        batch, started = predictor.read([text]), time.process_time()
        for name in scorers:
            predictor.rank(batch, RankingOptions(k=k, scorer=name))
        found += time.process_time() - started
    return found
