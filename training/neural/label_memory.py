"""The vectors of a step's labels: some are encoded in it, of the others the last one is remembered.

A step scores hundreds of labels, and to encode all of them takes as long as its documents do. Here
a fixed number is encoded. Which, is drawn with a probability that grows with the gradient that the
label's vector would get (importance sampling, as in Katharopoulos & Fleuret 2018), and the gradient
of one that was drawn is divided by its probability: in expectation the label encoder learns what
it would from all, as far as the remembered vectors are still right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from models.encoders.dual_encoder import encode_all
from training.neural.model import DeplModel, TrainingTexts

_UNIFORM_SHARE = 0.2
"""Of the probability to be drawn; bounds how much one gradient counts, and how old a vector is."""


@dataclass(frozen=True, slots=True)
class LabelVectors:
    """Gives a step the vectors of its labels.

    Attributes:
        model: Its `label_memory` has the remembered vectors, a row a label, where not all are
            encoded.
        texts: The descriptions that are encoded.
        device: Where the model is.
        most_encoded: Labels that a step encodes, at most. None: all.
    """

    model: DeplModel
    texts: TrainingTexts
    device: str
    most_encoded: int | None

    @classmethod
    def of(
        cls, model: DeplModel, texts: TrainingTexts, device: str, most_encoded: int | None
    ) -> LabelVectors:
        """Return what gives the vectors; unless all are encoded, every label is, once, now."""
        if most_encoded is not None:
            vectors = encode_all(
                model.encoder, texts.labels, "label", pad_id=texts.pad_id, device=device
            )
            model.label_memory = torch.from_numpy(vectors).to(device)
        return cls(model, texts, device, most_encoded)

    def __call__(
        self,
        labels: Int64[np.ndarray, sampled],
        rng: np.random.Generator,
        cost: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "sampled dim"]:
        """Return the vectors of a step's labels, and remember those that were encoded.

        Args:
            labels: Of the step, without repeats.
            rng: Of the step.
            cost: What vectors in the order of the labels cost; the gradient of the remembered ones
                decides which are encoded.
        """
        if self.most_encoded is None or self.most_encoded >= len(labels):
            vectors = self._encoded(labels, rng)
            if self.most_encoded is not None:
                self._remember(labels, vectors)
            return vectors
        remembered = self.model.label_memory[torch.from_numpy(labels).to(self.device)]
        chances = inclusion_probabilities(_gradient_norms(remembered, cost), self.most_encoded)
        is_drawn = systematic_draw(chances, rng)
        drawn = self._encoded(labels[is_drawn], rng)
        self._remember(labels[is_drawn], drawn)
        weights = torch.from_numpy(1 / chances[is_drawn]).to(drawn).unsqueeze(1)
        places = torch.from_numpy(np.flatnonzero(is_drawn)).to(self.device)
        constant = drawn.detach()
        return remembered.to(drawn).index_copy(0, places, constant + weights * (drawn - constant))

    def _encoded(
        self, labels: Int64[np.ndarray, drawn], rng: np.random.Generator
    ) -> Float[Tensor, "drawn dim"]:
        return self.model.encode(self.texts.label_batch(labels, rng, self.device), "label")

    def _remember(
        self, labels: Int64[np.ndarray, drawn], vectors: Float[Tensor, "drawn dim"]
    ) -> None:
        memory = self.model.label_memory
        memory[torch.from_numpy(labels).to(self.device)] = vectors.detach().to(memory)


def _gradient_norms(
    vectors: Float[Tensor, "sampled dim"], cost: Callable[[Tensor], Tensor]
) -> Float64[np.ndarray, sampled]:
    """Return the norm of the cost's gradient at each vector."""
    vectors = vectors.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(cost(vectors), vectors)
    norms: Float64[np.ndarray, sampled] = gradient.double().norm(dim=1).cpu().numpy()
    return norms


def inclusion_probabilities(
    sizes: Float64[np.ndarray, item], count: int
) -> Float64[np.ndarray, item]:
    """Return with which probability each of some items is drawn, of which `count` are.

    Proportional to size, a share that is the same for all apart; of what would pass 1, the others
    get the rest.

    Args:
        sizes: From 0; if none is above, all are equal.
        count: Items to draw, fewer than there are.
    """
    total = sizes.sum()
    shares = np.full(len(sizes), 1 / len(sizes))
    if total > 0:
        shares = _UNIFORM_SHARE * shares + (1 - _UNIFORM_SHARE) * sizes / total
    chances = np.ones(len(sizes))
    is_free = np.ones(len(sizes), dtype=bool)
    while True:
        left = count - int(np.count_nonzero(~is_free))
        chances[is_free] = left * shares[is_free] / shares[is_free].sum()
        is_over = is_free & (chances > 1)
        if not is_over.any():
            return chances
        chances[is_over] = 1
        is_free &= ~is_over


def systematic_draw(
    chances: Float64[np.ndarray, item], rng: np.random.Generator
) -> Bool[np.ndarray, item]:
    """Return which items are drawn: each with its probability, in all as many as those add up to.

    Systematic sampling of the items in random order (Madow 1949).

    Args:
        chances: Probabilities, which add up to a whole number.
        rng: Draws the order and where to begin.
    """
    order = rng.permutation(len(chances))
    ends = np.cumsum(chances[order])
    count = round(float(ends[-1]))
    points = (np.arange(count) + rng.random()) * (ends[-1] / count)
    is_drawn = np.zeros(len(chances), dtype=bool)
    is_drawn[order[np.searchsorted(ends, points, side="right")]] = True
    return is_drawn
