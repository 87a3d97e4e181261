"""How the weights of a stage move: AdamW, a rate for each group of them, and its schedule."""

from __future__ import annotations

import torch

from longtail.training.configuration.sections import StageConfig
from longtail.training.neural.model import DeplModel

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
        optimizer: Of `make_optimizer`.
        number: Steps taken before this one.
        total: Of the stage.
    """
    warmup = WARMUP_SHARE * total
    rise = (number + 1) / warmup
    left = (total - number) / max(1.0, total - warmup)  # share of the steps; above 1 in the warm-up
    factor = min(1.0, rise, left)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
