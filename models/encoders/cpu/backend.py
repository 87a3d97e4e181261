"""Which backend computes an encoder on a processor: the fastest that answers as it does.

| backend | for | its answers |
|---|---|---|
| `models.encoders.cpu.unpadded` | BERT and its kin, where oneDNN is | at most 1.5 times as far \
from those of float32 as the encoder's own, or a 100,000th of their length |
| the encoder itself | all others, and where the pass without padding does not answer so | |
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from longtail.models.encoders.cpu.torch_internals import can_pack
from longtail.models.encoders.cpu.unpadded import UnpaddedBert
from longtail.models.encoders.families import Transformer, num_positions

logger = logging.getLogger(__name__)

_CHECKED = ((1, 3, False), (5, 33, False), (2, 130, True))
"""Texts, tokens and whether there is padding, of the batches on which a backend is compared with
the encoder."""

_MAX_ERROR = 1.5
"""Distance from the vectors of float32 that a backend of other bits may have, as a multiple of the
encoder's own in its precision; that of `UnpaddedBert` is 0.9 to 1.0."""

_LEAST_ERROR = 1e-5
"""And as a share of their length, which it may have in any case; in float32, where the encoder's
own error is 0, that of `UnpaddedBert` is about 1e-6."""


@torch.inference_mode()
def choose_backend(transformer: Transformer) -> UnpaddedBert | None:
    """Return the pass without padding; None where the transformer computes itself.

    Args:
        transformer: On the CPU, in evaluation mode.
    """
    if not can_pack(transformer.dtype):
        return None
    try:
        unpadded = UnpaddedBert(transformer)
        reason = _excess_error(transformer, unpadded)
    except Exception as error:  # noqa: BLE001  # it uses PyTorch's internals; the encoder works as it is
        reason = f"{type(error).__name__}: {str(error)[:200]}"
    if reason is None:
        return unpadded
    logger.info("the encoder is not computed without padding: %s", reason)  # few can be
    return None


def _excess_error(transformer: Transformer, backend: UnpaddedBert) -> str | None:
    """Describe an output whose error against float32 exceeds what it may be; None if none does.

    That is `_MAX_ERROR` times the transformer's, or `_LEAST_ERROR` of the vectors' length. Errors
    are Euclidean distances over all batches together: by chance, one vector of few dimensions may
    be twice as far.
    """
    is_exact = transformer.dtype == torch.float32
    exact: nn.Module = transformer if is_exact else copy.deepcopy(transformer)
    exact.to(torch.float32)
    # Of each output, batch by batch: the error of transformer and backend, and the vectors' length.
    errors: dict[str, list[tuple[float, float, float]]] = {"tokens": [], "first tokens": []}
    for batch in _checks(num_positions(transformer)):
        # By text, token and dimension.
        expected, near = (each(**batch).last_hidden_state.float() for each in (exact, backend))
        usual = expected if is_exact else transformer(**batch).last_hidden_state.float()
        is_real = batch["attention_mask"].bool()  # padding has no meaning in any of them
        first = backend.first_states(**batch).float()  # (text, dim)
        compared = {
            "tokens": (expected[is_real], usual[is_real], near[is_real]),
            "first tokens": (expected[:, 0], usual[:, 0], first),
        }
        for what, (vectors, *others) in compared.items():
            base, error = ((each - vectors).norm().item() for each in others)
            errors[what].append((base, error, vectors.norm().item()))
    for what, each in errors.items():
        base, error, length = (math.hypot(*values) for values in zip(*each, strict=True))
        if not error <= max(_MAX_ERROR * base, _LEAST_ERROR * length):  # also where it is nan
            return (
                f"its vectors of {what} are {error:.3g} away from those of float32, the encoder's "
                f"own {base:.3g}"
            )
    return None


def _checks(most_tokens: int) -> Iterator[dict[str, Tensor]]:
    for num_texts, tokens, is_padded in _CHECKED:
        ids, mask = _batch(num_texts, min(tokens, most_tokens), is_padded=is_padded)
        yield {"input_ids": ids, "attention_mask": mask}


def _batch(num_texts: int, width: int, *, is_padded: bool) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask; the first text is padded to the length of the others."""
    # Ids that every vocabulary has; 1 is often the padding's, which some encoders look for.
    ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97  # (text, token)
    mask = torch.ones_like(ids)
    if is_padded:
        mask[0, (width + 1) // 2 :] = 0
    return ids, mask
