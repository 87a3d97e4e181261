"""The dual encoder's step over pairs: negatives and loss as for other scorers.

A step encodes the documents of its batch and the labels that it needs, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.training.configuration.learning import ClusterConfig, TreeConfig
from longtail.training.configuration.sections import RetrievalConfig
from longtail.training.label_tree.kept import kept_tree
from longtail.training.learning.document_distributions import UNIFORM_SHARE, PartlyUniform
from longtail.training.learning.model_distributions import ClusterNegatives
from longtail.training.learning.objectives import PairObjective, SamplerInputs, Scorer
from longtail.training.learning.pairs import (
    Exclude,
    label_counts,
    make_pairs,
    pair_indices,
    pairs_at,
)
from longtail.training.learning.sampling import Pairs, step_generator
from longtail.training.neural.document_vectors import encode_documents
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.neural.steps import Step, classifier_cost
from longtail.training.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class PairBatches:
    """The (document, label) pairs of a batch of documents.

    Attributes:
        truth: Labels of the training documents.
        exclude: Labels that are no negatives of a pair.
        most: Pairs a batch; of more, so many are chosen at random. None: all.
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
            label_batch = texts.labels.batch(labels.cpu().numpy(), texts.pad_id, machine.device)
            scores = model.encoder.scores(documents, model.encode(label_batch, "label"))
            cost = objective.cost(
                pairs, negatives, _looked_up(scores, positions, labels), generator
            )
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
        config: Of the stage.
        machine: Where to compute.
        seed: Of the run.
        folder: For the document vectors that a label tree is fitted to.
    """
    distribution = None if config.negatives is None else config.negatives.distribution
    weight, bias = model.classifier.weight, model.classifier.bias
    clusters, tree = None, None
    if isinstance(distribution, ClusterConfig):
        rng = np.random.default_rng(seed)
        clusters = ClusterNegatives.of(weight.detach(), bias.detach(), 1, rng)
        clusters = replace(clusters, uniform_share=UNIFORM_SHARE)
    elif isinstance(distribution, TreeConfig):
        encode = partial(
            encode_documents, model.encoder, texts.documents,
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
        clusters=clusters,
        label_weights=lambda: (weight, bias),
        tree=tree,
    )


def _looked_up(
    scores: Float[Tensor, "document distinct"],
    positions: Int64[Tensor, pair],
    labels: Int64[Tensor, distinct],
) -> Scorer:
    """Return the scorer that looks up the scores of rising labels."""

    def score(expected: Int64[Tensor, "#pair k"]) -> Float[Tensor, "pair k"]:
        return scores[positions.unsqueeze(1), torch.searchsorted(labels, expected)]

    return score
