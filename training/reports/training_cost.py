"""What training on a corpus will cost, estimated from its size before anything is trained.

A simple model, calibrated on what `docs/results` measured on two cores: the sparse model on
EURLEX57K (30 s, 0.47 GiB), on `library-keywords` (255 s, 1.35 GiB), and on made-up corpora of up to
two million documents and a million labels (192 to 1,920 s), which its seconds fit within a fifth;
all that needs no encoder on the first two (8 and 19 minutes); and with an encoder the first on one
H200 (15 minutes, one epoch of each stage).
"""

from __future__ import annotations

from dataclasses import dataclass

_SPARSE_SECONDS, _WORD_EXPONENT, _LABEL_EXPONENT = 2.23e-5, 0.4645, 0.7342
"""Seconds of the sparse model: the first, times words and labels to these powers."""
_SECONDS_A_DOCUMENT = 0.009
"""Of what else needs no encoder: names, neighbours, probabilities and the ensemble."""
_BASE_GIB, _BYTES_A_LABEL, _BYTES_A_WORD = 0.35, 6_000, 12
_TOKENS_A_WORD = 1.3
_MAX_TOKENS = 128
"""Of a document that the encoder reads, by default."""
_PASSES = 4
"""Over the training documents, by default: two epochs of either stage."""
_TOKENS_A_SECOND = {"two CPU cores": (1_900, 2_800), "one H200": (9_000, 20_000)}
"""Least and most that are trained on, of the packaged encoder."""
_ENCODER_GIB = 1.5


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate of one way to train.

    Attributes:
        what: The command's option, and on what.
        seconds: The least and the most that is likely.
        gib: Peak memory in GiB, the same.
    """

    what: str
    seconds: tuple[float, float]
    gib: tuple[float, float]


def estimate_costs(num_documents: int, num_words: int, num_labels: int) -> list[Cost]:
    """Return what training without and with an encoder is likely to take.

    Args:
        num_documents: To train on.
        num_words: Of all their texts.
        num_labels: With training documents.
    """
    words, labels = max(1, num_words), max(1, num_labels)
    sparse = _SPARSE_SECONDS * words**_WORD_EXPONENT * labels**_LABEL_EXPONENT
    gib = _BASE_GIB + (_BYTES_A_LABEL * labels + _BYTES_A_WORD * words) / 2**30
    light = sparse + _SECONDS_A_DOCUMENT * num_documents
    tokens_each = min(_MAX_TOKENS, _TOKENS_A_WORD * words / max(1, num_documents))
    tokens = _PASSES * num_documents * tokens_each
    costs = [
        Cost("--only-sparse, two CPU cores", _range(sparse, 0.5, 2.0), _range_of_memory(gib, 2.0)),
        Cost(
            "--without-encoder, two CPU cores", _range(light, 0.5, 2.0), _range_of_memory(gib, 3.0)
        ),
    ]
    for device, (slowest, fastest) in _TOKENS_A_SECOND.items():
        seconds = (0.5 * sparse + tokens / fastest, 2 * light + tokens / slowest)
        least, most = _range_of_memory(gib, 3.0)
        costs.append(
            Cost(
                f"with the packaged encoder, {device}",
                seconds,
                (_ENCODER_GIB + least, _ENCODER_GIB + most),
            )
        )
    return costs


def _range(value: float, least: float, most: float) -> tuple[float, float]:
    return value * least, value * most


def _range_of_memory(gib: float, most: float) -> tuple[float, float]:
    return max(_BASE_GIB, 0.5 * gib), gib * most
