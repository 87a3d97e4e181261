"""The layers of a transformer: some frozen, all computed twice to save memory, without dropout."""

from __future__ import annotations

import itertools
from typing import Any

from torch import nn

from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.errors import ConfigError


def freeze_layers(encoder: DualEncoder, count: int) -> None:
    """Keep the lowest layers of the transformer, and all that lies below them, as they are.

    Below are the embeddings with their positions and norms: were one of them trained, every step
    would still go back through the frozen layers. With a count of 0 everything is trained.

    Raises:
        ConfigError: There are not so many layers.
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
    """Let the transformer compute its layers twice, to remember less (Chen et al. 2016).

    Raises:
        ConfigError: It can't.
    """
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
    """Return the parameters below the first layer, those of each layer, and those above the last.

    Args:
        encoder: Whose transformer's parameters are divided.
        layers: The stack of the transformer's layers.
    """
    parameters = list(encoder.transformer.parameters())  # in the order of computation
    positions = {id(parameter): number for number, parameter in enumerate(parameters)}
    ends = [1 + max(positions[id(each)] for each in layer.parameters()) for layer in layers]
    first = min(positions[id(each)] for each in layers[0].parameters())
    bounds = itertools.pairwise([0, first, *ends, len(parameters)])
    return [parameters[start:end] for start, end in bounds]


def _transformer_layers(encoder: DualEncoder) -> nn.ModuleList | None:
    """Return the stack of equal layers, which every Hugging Face encoder has under some name."""
    depth = int(encoder.transformer.config.num_hidden_layers)
    stacks = (module for module in encoder.modules() if isinstance(module, nn.ModuleList))
    return next((stack for stack in stacks if len(stack) == depth), None)
