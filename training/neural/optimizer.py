"""How the weights of a stage move: AdamW, a rate for each group of them, and its schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from training.configuration.sections import StageConfig
from training.neural.layers import parameters_by_depth
from training.neural.model import DeplModel


def make_optimizer(model: DeplModel, config: StageConfig) -> torch.optim.AdamW:
    """Return AdamW with a group for each rate: transformer, poolers, classifier.

    With `layer_decay` below 1 the transformer has a group for each layer: that of the top layer has
    the encoder's rate, each other so many times the rate of the one above it (Howard & Ruder 2018,
    section 3.2); the embeddings are one more layer below.

    Raises:
        ConfigError: A decay by layers is asked for, and the transformer has no stack of them.
    """
    encoder = model.encoder
    poolers = [*encoder.document_pooler.parameters(), *encoder.label_pooler.parameters()]
    scalars = [encoder.log_scale, encoder.score_bias]
    groups = [
        *_transformer_groups(model, config),
        (poolers, config.pooler_learning_rate),
        ([*model.classifier.parameters(), *scalars], config.classifier_learning_rate),
    ]
    return torch.optim.AdamW(
        [
            {"params": [p for p in params if p.requires_grad], "lr": rate, "peak": rate}
            for params, rate in groups
        ],
        weight_decay=config.weight_decay,
    )


def _transformer_groups(
    model: DeplModel, config: StageConfig
) -> list[tuple[list[nn.Parameter], float]]:
    """Return parameters and their rate, that of the top layer first."""
    rate = config.encoder_learning_rate
    if config.layer_decay == 1:
        return [(list(model.encoder.transformer.parameters()), rate)]
    *below, top, above = parameters_by_depth(model.encoder)
    layers = [[*top, *above], *reversed(below)]
    return [(layer, rate * config.layer_decay**depth) for depth, layer in enumerate(layers)]


def set_rates(
    optimizer: torch.optim.Optimizer, config: StageConfig, number: int, total: int
) -> None:
    """Give every group its rate in a step: a linear rise to its peak, then the schedule.

    Args:
        optimizer: Of `make_optimizer`.
        config: Warm-up and schedule.
        number: Steps taken before this one.
        total: Of the stage.
    """
    warmup = config.warmup_share * total
    rise = (number + 1) / warmup if warmup else 1.0
    left = (total - number) / max(1.0, total - warmup)  # above 1 in the warm-up
    factor = min(1.0, rise, _SCHEDULES[config.schedule](min(1.0, left)))
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor


_SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda left: left,
    "cosine": lambda left: (1 - math.cos(math.pi * left)) / 2,
    "constant": lambda _: 1.0,
}
"""Share of the peak by the share of the steps after the warm-up that are left."""
