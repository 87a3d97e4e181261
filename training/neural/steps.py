"""Neural training: the model, and the loss of a step of the dense classifier and the dual encoder.

`longtail.training.neural.loop` takes the steps (DEPL 3.3, 3.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.encoders.dual_encoder import DualEncoder, Role, encode_all
from longtail.training.learning.subset_losses import SubsetLoss, depl_loss
from longtail.training.neural.label_subsets import LabelSubsets, positives_among
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.runtime.machine import Machine

_START_TEXTS = 256  # documents and labels that set the first scale and bias of f_dual
_COSINE_SCALE = 10.0  # how sharply the first scores tell cosines apart
_START_LOGIT = -4.0  # log-odds of the mean pair: about 2 positives in 100
_ROLES: tuple[Role, Role] = ("document", "label")


Step = Callable[[Int64[np.ndarray, "batch"], np.random.Generator], Tensor]
"""Returns the loss of some training documents."""


def classifier_step(model: DeplModel, texts: TrainingTexts, machine: Machine) -> Step:
    """Return the step of the dense classifier: binary cross-entropy over all labels."""

    def step(rows: Int64[np.ndarray, batch], _: np.random.Generator) -> Tensor:
        batch = texts.documents.batch(rows, texts.pad_id, machine.device)
        return classifier_cost(model, model.encode(batch, "document"), texts.truth[rows])

    return step


def classifier_cost(
    model: DeplModel,
    documents: Float[Tensor, "batch dim"],
    truth: Float32[csr_array, "batch label"],
) -> Float[Tensor, ""]:
    """Return the classifier's binary cross-entropy over all labels."""
    scores = model.classifier_scores(documents)
    return depl_loss(scores, torch.from_numpy(truth.toarray() > 0))


def retrieval_step(
    model: DeplModel,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    machine: Machine,
    *,
    loss: SubsetLoss,
    keep_classifier: bool,
) -> Step:
    """Return the step of the dual encoder: a loss over the batch's label subset (DEPL 3.3, 3.5).

    Args:
        model: Trained in place.
        texts: Documents and label descriptions.
        subsets: Draws S_b.
        machine: Where to compute.
        loss: Of the scores; L_dual in the paper.
        keep_classifier: Add the classifier's loss over the same documents and all labels, so that
            it stays in step with the moving document vectors.
    """

    def step(rows: Int64[np.ndarray, batch], rng: np.random.Generator) -> Tensor:
        truth = texts.truth[rows]
        labels = subsets.draw(rows, rng)
        documents = model.encode(
            texts.documents.batch(rows, texts.pad_id, machine.device), "document"
        )
        label_batch = texts.labels.batch(labels, texts.pad_id, machine.device)
        scores = model.encoder.scores(documents, model.encode(label_batch, "label"))
        is_positive = torch.from_numpy(positives_among(truth, labels)).to(scores.device)
        cost = loss(scores, is_positive)
        if keep_classifier:
            cost = cost + classifier_cost(model, documents, truth)
        return cost

    return step


@torch.no_grad()
def start_scores(model: DualEncoder, texts: TrainingTexts) -> None:
    """Set s and b of f_dual so that its sigmoids start where a loss over a label subset can learn.

    A difference of cosines of 1 becomes one of 10 in the score, and the mean pair gets
    the log-odds of a few positives in a few hundred labels. Left at s = 1, b = 0, with vectors of
    length 8, every score starts in the flat end of the sigmoid.

    Args:
        model: Changed in place.
        texts: The first documents and labels stand for all.
    """
    first = [t.first(_START_TEXTS) for t in (texts.documents, texts.labels)]
    device = str(model.score_bias.device)
    documents, labels = (
        encode_all(model, tokens, role, pad_id=texts.pad_id, device=device)
        for tokens, role in zip(first, _ROLES, strict=True)
    )
    length = np.linalg.norm(documents, axis=1).mean() * np.linalg.norm(labels, axis=1).mean()
    scale = _COSINE_SCALE / float(length)
    model.log_scale.fill_(math.log(scale))
    model.score_bias.fill_(_START_LOGIT - scale * float((documents @ labels.T).mean()))
