"""What training on a corpus will cost, estimated from its size before anything is trained.

A simple model, calibrated on what `docs/results` measured on two cores: the sparse model on
EURLEX57K (30 s, 0.47 GiB), on `library-keywords` (255 s, 1.35 GiB), and on made-up corpora of up to
two million documents and a million labels (192 to 1,920 s), which its seconds fit within a fifth;
all that needs no encoder on the first two (8 and 19 minutes); and with a fine-tuned encoder the
first on one H200 (15 minutes, one epoch of each stage). In no table of results are the rates of the
encoder on two cores (trials: 15 to 21 documents of 128 tokens a second are trained on; 95 to 110
are read in bfloat16, 26 in float32 by AVX2) and its memory (assumed).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.models.extras import is_packaged_installed
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset

_SPARSE_SECONDS, _WORD_EXPONENT, _LABEL_EXPONENT = 2.23e-5, 0.4645, 0.7342
"""Seconds of the sparse model: the first, times words and labels to these powers."""
_SECONDS_A_DOCUMENT = 0.009
"""For all else without an encoder: names, neighbours, probabilities and the ensemble."""
_START_SECONDS = 5.0
"""Beside the training: imports and the bundle."""
_BASE_GIB, _BYTES_A_LABEL, _BYTES_A_WORD = 0.35, 6_000, 12
_TOKENS_A_WORD, _CHARACTERS_A_WORD = 1.3, 6.5
_MAX_TOKENS = 128
"""Tokens of a document that the encoder reads, by default."""
_PASSES = 2
"""Over the training documents, to fine-tune on them for an epoch: gradients, and vectors."""
_TOKENS_READ_A_SECOND = (3_400, 14_000)
"""Least and most that the packaged encoder reads as it comes, on two cores."""
_TOKENS_A_SECOND = {"two CPU cores": (1_900, 2_800), "one H200": (9_000, 20_000)}
"""Least and most that are trained on, of the packaged encoder."""
_ENCODER_GIB = 1.5


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate of one way to train.

    Attributes:
        what: The way to train, and on what.
        seconds: The least and the most that is likely.
        gib: Peak memory in GiB, the same.
    """

    what: str
    seconds: tuple[float, float]
    gib: tuple[float, float]

    @property
    def time(self) -> str:
        """The seconds in words, such as "3 min to 12 min"."""
        return " to ".join(map(_in_words, self.seconds))


_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def _in_words(seconds: float) -> str:
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= 2 * s), _UNITS[-1])
    return f"{max(1, round(seconds / size))} {unit}"


def forecast(config: TrainingConfig, dataset: Dataset) -> str:
    """Return which way a run trains, how long that is likely to take, and what others would."""
    scan = dataset.split("train").scan()
    num_words = int(scan.lengths.sum() / _CHARACTERS_A_WORD)
    _, light, whole, tuned, _ = estimate_costs(
        scan.labels.shape[0], num_words, len(np.unique(scan.labels.indices))
    )
    said = "idle machine of two cores"
    is_left_out = config.is_encoder_by_default and not is_packaged_installed()
    if not config.is_dense or is_left_out:
        return f"Trains without an encoder: {light.time} on an {said}. With one: {whole.time}."
    if config.is_encoder_by_default:
        return (
            f"Trains without an encoder: {light.time} on an {said}. Then it tries one on a sample, "
            f"and goes on with it where it helps: {whole.time} in all."
        )
    if config.is_tuned:
        return f"Fine-tunes an encoder: {tuned.time} for an epoch on an {said}."
    return (
        f"Trains with the encoder as it comes: {whole.time} on an {said}. Without one: "
        f"{light.time}. Fine-tuned (--config full): {tuned.time}."
    )


def estimate_costs(num_documents: int, num_words: int, num_labels: int) -> list[Cost]:
    """Return what training without and with an encoder is likely to take."""
    words, labels = max(1, num_words), max(1, num_labels)
    sparse = _SPARSE_SECONDS * words**_WORD_EXPONENT * labels**_LABEL_EXPONENT
    light = sparse + _SECONDS_A_DOCUMENT * num_documents
    gib = _BASE_GIB + (_BYTES_A_LABEL * labels + _BYTES_A_WORD * words) / 2**30
    least_gib = max(_BASE_GIB, 0.5 * gib)
    costs = [
        Cost(
            "the sparse model alone, two CPU cores",
            _from_start(sparse / 2, 2 * sparse),
            (least_gib, 2 * gib),
        ),
        Cost(
            "without an encoder, two CPU cores",
            _from_start(light / 2, 2 * light),
            (least_gib, 3 * gib),
        ),
    ]
    tokens_a_document = min(_MAX_TOKENS, _TOKENS_A_WORD * words / max(1, num_documents))
    read = num_documents * tokens_a_document
    tokens = _PASSES * read
    dense_gib = (_ENCODER_GIB + least_gib, _ENCODER_GIB + 3 * gib)
    slowest, fastest = _TOKENS_READ_A_SECOND
    seconds = _from_start(light / 2 + read / fastest, 2 * light + read / slowest)
    costs.append(Cost("the default, with the packaged encoder, two CPU cores", seconds, dense_gib))
    for device, (slowest, fastest) in _TOKENS_A_SECOND.items():
        seconds = _from_start(sparse / 2 + tokens / fastest, 2 * light + tokens / slowest)
        costs.append(Cost(f"--config full, fine-tuned, {device}", seconds, dense_gib))
    return costs


def _from_start(least: float, most: float) -> tuple[float, float]:
    return least + _START_SECONDS, most + _START_SECONDS
