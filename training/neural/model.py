"""The model that is trained: encoder, poolers, label weights; its layers, and how weights move."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor, nn

from longtail.models.encoders.dual_encoder import DualEncoder, Role
from longtail.models.encoders.tokens import TokenBatch, TokenizedTexts
from longtail.models.errors import ConfigError
from longtail.training.configuration.sections import StageConfig


class DeplModel(nn.Module):
    """The dual encoder and a classifier over the same document vectors.

    f_cls(x, l) = <phi_doc(x), w_l> + b_l (DEPL Eq. 3, with a bias).
    """

    def __init__(self, encoder: DualEncoder, priors: Float32[np.ndarray, label]) -> None:
        """Start the classifier at the priors.

        Args:
            encoder: The dual encoder.
            priors: Share of training documents that carry each label, above 0 and below 1.
        """
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Linear(encoder.dim, len(priors))
        with torch.no_grad():
            self.classifier.weight.zero_()
            self.classifier.bias.copy_(torch.from_numpy(np.log(priors / (1 - priors))))
        self.encode_by: Callable[[TokenBatch, Role], Tensor] | None = None

    def encode(self, batch: TokenBatch, role: Role) -> Float[Tensor, "batch dim"]:
        """Return the vectors of a step's texts, encoded as its stage wants it (`encode_by`)."""
        return self.encoder(batch, role) if self.encode_by is None else self.encode_by(batch, role)

    def encoding_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that make the vectors of texts."""
        encoder = self.encoder
        parts = (encoder.transformer, encoder.document_pooler, encoder.label_pooler)
        return [parameter for part in parts for parameter in part.parameters()]

    def classifier_scores(
        self, documents: Float[Tensor, "batch dim"]
    ) -> Float[Tensor, "batch label"]:
        """Return f_cls of each document for all labels."""
        scores: Tensor = self.classifier(documents)
        return scores


KEYWORD_DROPOUT = 0.3
"""Share of a step's labels that are read without their keywords, as labels without training
documents always are."""


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """What neural training reads.

    Attributes:
        documents: Training documents as tokens.
        labels: Label descriptions as tokens.
        truth: The labels of each document.
        pad_id: The tokenizer's padding id.
        label_views: Label descriptions, and behind them the same without keywords; None: no
            keywords are left out.
    """

    documents: TokenizedTexts
    labels: TokenizedTexts
    truth: Float32[csr_array, "document label"]
    pad_id: int
    label_views: TokenizedTexts | None = None

    def label_batch(
        self, labels: Int64[np.ndarray, sampled], rng: np.random.Generator, device: str
    ) -> TokenBatch:
        """Return the texts of a step's labels, of which some are read without their keywords."""
        if self.label_views is None:
            return self.labels.batch(labels, self.pad_id, device)
        is_bare = rng.random(len(labels)) < KEYWORD_DROPOUT
        return self.label_views.batch(labels + len(self.labels) * is_bare, self.pad_id, device)


def freeze_layers(encoder: DualEncoder, count: int) -> None:
    """Keep the lowest layers of the transformer, and all that is below them, as they are.

    Below are the embeddings with their positions and norms: were one of them trained, every step
    would still go back through the frozen layers. With a count of 0 everything is trained.
    """
    if count == 0:
        return
    layers = _transformer_layers(encoder)
    if layers is None or count > len(layers):
        raise ConfigError(
            f"frozen_layers is {count}, but {type(encoder.transformer).__name__} has "
            f"{0 if layers is None else len(layers)} layers that can be frozen"
        )
    for parameters in parameters_by_depth(encoder, layers)[: count + 1]:
        for parameter in parameters:
            parameter.requires_grad_(False)


def checkpoint_gradients(encoder: DualEncoder) -> None:
    """Let the transformer compute its layers twice, to remember less (Chen et al. 2016)."""
    transformer: Any = encoder.transformer
    if not transformer.supports_gradient_checkpointing:
        raise ConfigError(
            f"gradient_checkpointing: {type(transformer).__name__} can't; leave it out"
        )
    if hasattr(transformer, "activation_checkpointing_enable"):
        transformer.activation_checkpointing_enable({"use_reentrant": False})
    else:  # the name before
        transformer.gradient_checkpointing_enable({"use_reentrant": False})


def begin_training(model: nn.Module) -> None:
    """Put a model in training mode, in which layers may be computed twice, without dropout.

    A transformer knows no rate that could be set for all families; but what it drops, it drops in
    training mode alone.
    """
    model.train()
    for module in model.modules():
        module.training = bool(getattr(module, "gradient_checkpointing", False))


def parameters_by_depth(encoder: DualEncoder, layers: nn.ModuleList) -> list[list[nn.Parameter]]:
    """Return the parameters below the first layer, of each layer, and above the last one."""
    parameters = list(encoder.transformer.parameters())  # in the order of computation
    positions = {id(parameter): number for number, parameter in enumerate(parameters)}
    ends = [1 + max(positions[id(each)] for each in layer.parameters()) for layer in layers]
    first = min(positions[id(each)] for each in layers[0].parameters())
    bounds = itertools.pairwise([0, first, *ends, len(parameters)])
    return [parameters[start:end] for start, end in bounds]


def _transformer_layers(encoder: DualEncoder) -> nn.ModuleList | None:
    depth = int(encoder.transformer.config.num_hidden_layers)
    stacks = (module for module in encoder.modules() if isinstance(module, nn.ModuleList))
    return next((stack for stack in stacks if len(stack) == depth), None)


WARMUP_SHARE = 0.1
"""Share of the steps in which the rates rise."""
WEIGHT_DECAY = 0.01


def make_optimizer(model: DeplModel, config: StageConfig) -> torch.optim.AdamW:
    """Return AdamW with a group for each rate: transformer, poolers, classifier."""
    encoder = model.encoder
    poolers = [*encoder.document_pooler.parameters(), *encoder.label_pooler.parameters()]
    scalars = [encoder.log_scale, encoder.score_bias]
    groups = [
        ([*encoder.transformer.parameters()], config.encoder_learning_rate),
        (poolers, config.pooler_learning_rate),
        ([*model.classifier.parameters(), *scalars], config.classifier_learning_rate),
    ]
    return torch.optim.AdamW(
        [
            {"params": [p for p in params if p.requires_grad], "lr": rate, "peak": rate}
            for params, rate in groups
        ],
        weight_decay=WEIGHT_DECAY,
        fused=True,  # one pass over the weights, not one for each operation
    )


def set_rates(optimizer: torch.optim.Optimizer, number: int, total: int) -> None:
    """Give every group its rate in a step: a linear rise to its peak, then a fall towards zero.

    Args:
        optimizer: The result of `make_optimizer`.
        number: Steps taken before this one.
        total: The stage's number of steps.
    """
    warmup = WARMUP_SHARE * total
    rise = (number + 1) / warmup
    left = (total - number) / max(1.0, total - warmup)  # share of the steps; above 1 in the warm-up
    factor = min(1.0, rise, left)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
