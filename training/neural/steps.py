"""The loss of a step of neural training: of the dense classifier, the dual encoder, or over pairs.

`longtail.training.neural.loop` takes the steps (DEPL 3.3, 3.5). A step over pairs has negatives and
a loss as other scorers have; it encodes the documents of its batch and the labels that it needs,
each once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.encoders.dual_encoder import DualEncoder, Role, encode_all
from longtail.training.configuration.negatives import TreeConfig
from longtail.training.configuration.sections import RetrievalConfig
from longtail.training.label_tree.fit import kept_tree
from longtail.training.learning.document_distributions import (
    UNIFORM_SHARE,
    PartlyUniform,
)
from longtail.training.learning.objectives import PairObjective, SamplerInputs, Scorer
from longtail.training.learning.sampling import (
    Exclude,
    Pairs,
    label_counts,
    make_pairs,
    pair_indices,
    pairs_at,
    step_generator,
)
from longtail.training.losses import SubsetLoss, depl_loss
from longtail.training.neural.batching import LabelSubsets, positives_among
from longtail.training.neural.document_vectors import encode_texts
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.runtime.distributed import Machine

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
        loss: Loss of the scores; L_dual in the paper.
        keep_classifier: Add the classifier's loss over the same documents and all labels, so that
            it stays in step with the moving document vectors.
    """

    def step(rows: Int64[np.ndarray, batch], rng: np.random.Generator) -> Tensor:
        truth = texts.truth[rows]
        labels = subsets.draw(rows, rng)
        documents = model.encode(
            texts.documents.batch(rows, texts.pad_id, machine.device), "document"
        )
        label_batch = texts.label_batch(labels, rng, machine.device)
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
    length 8, every score starts in the flat end of the sigmoid. The first documents and labels
    stand for all.
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


@dataclass(frozen=True, slots=True)
class PairBatches:
    """The (document, label) pairs of a batch of documents.

    Attributes:
        truth: Labels of the training documents.
        exclude: Labels that are no negatives of a pair.
        most: Pairs a batch; of more, these are chosen at random. None: all.
    """

    truth: Float32[csr_array, "document label"]
    exclude: Exclude
    most: int | None

    def draw(
        self, rows: Int64[np.ndarray, batch], rng: np.random.Generator, device: str
    ) -> tuple[Pairs, Int64[Tensor, pair]]:
        """Return the pairs, and which of the rows each has its document from."""
        indices = pair_indices(self.truth, rows)
        positions = np.repeat(np.arange(len(rows)), np.diff(self.truth.indptr)[rows])
        if self.most is not None and len(indices) > self.most:
            chosen = np.sort(rng.choice(len(indices), self.most, replace=False))
            indices, positions = indices[chosen], positions[chosen]
        pairs = make_pairs(self.truth, *pairs_at(self.truth, indices), self.exclude, device)
        return pairs, torch.from_numpy(positions).to(device)


def pair_step(
    model: DeplModel,
    texts: TrainingTexts,
    batches: PairBatches,
    objective: PairObjective,
    machine: Machine,
    *,
    keep_classifier: bool,
) -> Step:
    """Return the step of the dual encoder for an objective over pairs.

    Args:
        model: Trained in place.
        texts: Documents and label descriptions.
        batches: The pairs of a step.
        objective: What they cost.
        machine: Where to compute.
        keep_classifier: Add the classifier's loss, as in
            `longtail.training.neural.steps.retrieval_step`.
    """

    def step(rows: Int64[np.ndarray, batch], rng: np.random.Generator) -> Tensor:
        documents = model.encode(
            texts.documents.batch(rows, texts.pad_id, machine.device), "document"
        )
        pairs, positions = batches.draw(rows, rng, machine.device)
        cost: Tensor = 0 * documents.sum()  # of a batch without labels
        if len(positions):
            pairs = replace(pairs, vectors=documents.detach().float().index_select(0, positions))
            generator = step_generator(rng, machine.device)
            with torch.autocast(machine.device, enabled=False):
                negatives = objective.distribution.draw(pairs, generator)
            labels = torch.unique(torch.cat([pairs.labels, negatives.labels.flatten()]))
            label_batch = texts.label_batch(labels.cpu().numpy(), rng, machine.device)
            scores = model.encoder.scores(documents, model.encode(label_batch, "label"))
            cost = objective.cost(pairs, negatives, _looked_up(scores, positions, labels))
        if keep_classifier:
            cost = cost + classifier_cost(model, documents, texts.truth[rows])
        return cost

    return step


def encoder_inputs(
    model: DeplModel,
    texts: TrainingTexts,
    hard: Int64[np.ndarray, "document hard"],
    config: RetrievalConfig,
    machine: Machine,
    *,
    seed: int,
    folder: Path,
) -> SamplerInputs:
    """Return what the negatives of the dual encoder are made of.

    Those that follow scores follow the classifier's: it scores all labels of a document without
    encoding one, and its log q is exact for what is drawn.

    Args:
        model: With the trained classifier.
        texts: Documents and label descriptions.
        hard: Hard negatives of each document.
        config: The stage's configuration.
        machine: Where to compute.
        seed: The run's seed.
        folder: For the document vectors that a label tree is fitted to.
    """
    distribution = None if config.negatives is None else config.negatives.distribution
    tree = None
    if isinstance(distribution, TreeConfig):
        encode = partial(
            encode_texts, model.encoder, texts.documents, "document",
            pad_id=texts.pad_id, device=machine.device, folder=folder,
        )  # fmt: skip
        fitted = machine.processes.from_first(
            lambda: kept_tree(encode, texts.truth, distribution, seed=seed, folder=folder)
        )
        num_labels = texts.truth.shape[1]
        tree = PartlyUniform(fitted.to(machine.device), UNIFORM_SHARE, num_labels)
    return SamplerInputs(
        counts=label_counts(texts.truth),
        device=machine.device,
        hard=torch.from_numpy(hard).to(machine.device),
        score_all=lambda pairs: model.classifier_scores(pairs.document_vectors()),
        tree=tree,
    )


def _looked_up(
    scores: Float[Tensor, "document distinct"],
    positions: Int64[Tensor, pair],
    labels: Int64[Tensor, distinct],
) -> Scorer:
    def score(expected: Int64[Tensor, "#pair k"]) -> Float[Tensor, "pair k"]:
        return scores[positions.unsqueeze(1), torch.searchsorted(labels, expected)]

    return score
