"""Early stopping: a metric on the dev split now and then, and the best weights that it has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor, nn

from longtail.models.encoders.dual_encoder import Role, encode_all
from longtail.models.encoders.tokens import TokenizedTexts
from longtail.models.ranking.top_k import top_of_scores
from longtail.training.configuration.sections import EarlyStoppingConfig
from longtail.training.evaluation.by_frequency import ALL_LABELS, TAIL_BIN, measure
from longtail.training.evaluation.metrics import join_truth
from longtail.training.learning.pairs import label_counts
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.runtime.machine import Machine
from longtail.training.runtime.run_log import DevPoint

DevMetric = Callable[[], float]
"""Returns the metric of the model as it is."""
_ROWS = 512
"""Documents that are ranked at a time."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DevSample:
    """Documents of the dev split.

    Attributes:
        documents: As tokens.
        truth: Their labels.
    """

    documents: TokenizedTexts
    truth: Float32[csr_array, "document label"]

    @classmethod
    def draw(
        cls, documents: TokenizedTexts, truth: Float32[csr_array, "all label"], size: int, seed: int
    ) -> DevSample:
        """Return as many of all documents as a seed chooses; all, where there are no more."""
        if size >= len(documents):
            return cls(documents, truth)
        rows = np.sort(np.random.default_rng(seed).choice(len(documents), size, replace=False))
        return cls(documents.take(rows.tolist()), truth[rows])


class EarlyStopping:
    """Says when to measure and when to stop, and keeps the best weights.

    Attributes:
        points: What was measured so far, in order.
        best: The weights at the best of them; None before the first.
    """

    def __init__(
        self, config: EarlyStoppingConfig, dev_metric: DevMetric, num_documents: int
    ) -> None:
        """Start without a measurement.

        Args:
            config: When to measure, and how long to wait for something better.
            dev_metric: Measures.
            num_documents: Training documents of an epoch.
        """
        self.points: list[DevPoint] = []
        self.best: dict[str, Tensor] | None = None
        self.dev_metric = dev_metric
        self._config = config
        self._num_documents = num_documents

    def restore(self, points: Sequence[DevPoint], best: dict[str, Tensor] | None) -> None:
        """Resume after what a checkpoint holds."""
        self.points, self.best = list(points), best

    def is_due(self, before: int, after: int, *, is_last: bool) -> bool:
        """Return whether to measure after a step.

        Args:
            before: Documents seen before the step, of all epochs.
            after: Those seen after it.
            is_last: Whether no step follows.
        """
        interval = self._config.every * self._num_documents
        passed = [math.floor(seen / interval + _ROUNDING) for seen in (before, after)]
        return is_last or passed[1] > passed[0]

    def note(self, step: int, seen: int, value: float, model: nn.Module) -> None:
        """Write down what was measured, and keep the weights if nothing was as good before.

        Args:
            step: Steps taken.
            seen: Documents seen.
            value: Of the metric.
            model: It has the weights.
        """
        is_best = not self.points or value > max(point.value for point in self.points)
        epochs = round(seen / self._num_documents, 4)
        self.points.append(DevPoint(step, epochs, self._config.metric, value))
        if is_best:
            state = model.state_dict().items()
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in state}

    @property
    def is_over(self) -> bool:
        """Whether too many measurements in a row brought nothing better."""
        values = [point.value for point in self.points]
        return bool(values) and len(values) - 1 - int(np.argmax(values)) >= self._config.patience


def classifier_metric(
    model: DeplModel, texts: TrainingTexts, sample: DevSample, metric: str, machine: Machine
) -> DevMetric:
    """Return what measures the dense classifier on the dev split."""

    def value() -> float:
        documents = _encoded(model, sample.documents, texts, machine, is_label=False)
        weight, bias = (
            each.detach().float().cpu().numpy()
            for each in (model.classifier.weight, model.classifier.bias)
        )
        return metric_of(documents, weight, bias, sample, texts, metric)

    return value


def retrieval_metric(
    model: DeplModel, texts: TrainingTexts, sample: DevSample, metric: str, machine: Machine
) -> DevMetric:
    """Return what measures the dual encoder on the dev split."""

    def value() -> float:
        documents = _encoded(model, sample.documents, texts, machine, is_label=False)
        labels = _encoded(model, texts.labels, texts, machine, is_label=True)
        no_bias = np.zeros(len(labels), dtype=np.float32)
        return metric_of(documents, labels, no_bias, sample, texts, metric)

    return value


@torch.no_grad()
def _encoded(
    model: DeplModel,
    tokens: TokenizedTexts,
    texts: TrainingTexts,
    machine: Machine,
    *,
    is_label: bool,
) -> Float32[np.ndarray, "text dim"]:
    role: Role = "label" if is_label else "document"
    with machine.autocast():
        return encode_all(model.encoder, tokens, role, pad_id=texts.pad_id, device=machine.device)


def metric_of(
    documents: Float32[np.ndarray, "document dim"],
    labels: Float32[np.ndarray, "label dim"],
    bias: Float32[np.ndarray, label],
    sample: DevSample,
    texts: TrainingTexts,
    metric: str,
) -> float:
    """Return a metric of the ranking by inner products.

    Args:
        documents: Vectors of the sample.
        labels: Vectors of all labels.
        bias: Added to the scores of each label.
        sample: What its documents carry.
        texts: Number of training documents, and how many each label has.
        metric: A name and k, as "P@5"; macro-F1 is over the labels with 1-9 training documents,
            and 0 where there are none.
    """
    k = int(metric.rpartition("@")[2])
    ranked: Int64[np.ndarray, "document k"] = np.concatenate([
        top_of_scores(documents[start : start + _ROWS] @ labels.T + bias, k).labels
        for start in range(0, len(documents), _ROWS)
    ])  # fmt: skip
    counts = label_counts(texts.truth)
    measured = measure(join_truth(ranked, sample.truth), counts, texts.truth.shape[0], (k,))
    subset = TAIL_BIN if metric.startswith("macro-F1") else ALL_LABELS
    return measured[subset].values.get(metric, 0.0)
