"""Encoders whose forward pass is one call: the same operations, to the bit, without Python between.

A small encoder on a few short texts is some hundred operations of some ten microseconds each. Run
from Python, each of them takes and leaves the interpreter's lock, which a service's event loop
wants too; and Python itself takes a millisecond a batch. Recorded once and replayed by PyTorch, the
whole pass leaves the lock alone.

A recording takes the weights with every call. So one serves all encoders of an architecture, such
as the versions of a model, and none of them is held by it: PyTorch never frees a recording.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from threading import Lock

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from models.encoder import window_of

logger = logging.getLogger(__name__)

Recording = Callable[..., Tensor]
"""From token ids, their mask, and the weights in order, to the last layer."""

_RECORDED = (2, 7)
"""Texts and tokens of the batch that is recorded; the first text has padding."""
_CHECKED = ((1, 3), (1, 40), (3, 12), (5, 33), (2, 130))
"""And of those on which the recording is compared with the encoder, with padding and without."""

_recordings: dict[str, Recording] = {}
_lock = Lock()


class TracedTransformer(nn.Module):
    """Stands in for a transformer in `models.dual_encoder.DualEncoder`; only for inference.

    Attributes:
        config: The transformer's.
        dtype: What it computes in.
    """

    def __init__(self, transformer: PreTrainedModel, recording: Recording) -> None:
        """Take a transformer and the recording of its architecture."""
        super().__init__()
        self.config = transformer.config
        self.dtype = transformer.dtype
        self._weights = tuple(_weights_of(transformer).values())
        self._recording = recording

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> BaseModelOutput:
        """Return the last layer, as the transformer itself does."""
        hidden = self._recording(input_ids, attention_mask, *self._weights)
        return BaseModelOutput(last_hidden_state=hidden)


@torch.inference_mode()
def trace_transformer(transformer: PreTrainedModel) -> TracedTransformer | None:
    """Return a transformer's stand-in; None where it can't be recorded, or answers differently.

    Some encoders decide by the shape or the values of a batch what they do next, which a recording
    can't; so its answers are compared, on batches of other shapes than the recorded one.

    Args:
        transformer: On the CPU, in evaluation mode.
    """
    try:
        traced = TracedTransformer(transformer, _recording_for(transformer))
        found = _first_difference(transformer, traced)
    except Exception as error:  # noqa: BLE001  # whatever a foreign encoder does, it works as it is
        found = f"{type(error).__name__}: {str(error)[:200]}"
    if found is None:
        return traced
    logger.warning("the encoder runs step by step, as it can't be recorded: %s", found)
    return None


def _weights_of(transformer: nn.Module) -> dict[str, Tensor]:
    """Return all that its modules hold, by name; what several of them share, once for each."""
    parameters = transformer.named_parameters(remove_duplicate=False)
    buffers = transformer.named_buffers(remove_duplicate=False)
    return {name: tensor.detach() for name, tensor in (*parameters, *buffers)}


def _put_weights(transformer: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put tensors, as they are, in the place of its own."""
    for name, tensor in weights.items():
        owner, _, leaf = name.rpartition(".")
        module = transformer.get_submodule(owner)
        held = module._parameters if leaf in module._parameters else module._buffers
        held[leaf] = tensor  # type: ignore[assignment]  # not a `Parameter`


def _recording_for(transformer: PreTrainedModel) -> Recording:
    """Return the recording of an architecture, made when first asked for."""
    weights = _weights_of(transformer)
    shapes = {name: (tuple(each.shape), each.dtype) for name, each in weights.items()}
    key = f"{transformer.config.to_json_string()} {shapes}"
    with _lock:
        if key not in _recordings:
            _recordings[key] = _record(transformer, weights)
        return _recordings[key]


def _record(transformer: PreTrainedModel, weights: dict[str, Tensor]) -> Recording:
    recorded = copy.deepcopy(transformer)
    names = tuple(weights)

    def last_layer(
        ids: Int[Tensor, "batch token"], mask: Int[Tensor, "batch token"], *tensors: Tensor
    ) -> Float[Tensor, "batch token dim"]:
        _put_weights(recorded, dict(zip(names, tensors, strict=True)))
        hidden: Tensor = recorded(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden

    example = (*_batch(*_RECORDED, is_padded=True), *weights.values())
    with warnings.catch_warnings():
        # What may go wrong is what `_first_difference` looks for. PyTorch's successor of the
        # function needs a compiler to get rid of Python.
        warnings.simplefilter("ignore")
        recording: Recording = torch.jit.trace(  # type: ignore[no-untyped-call]
            last_layer, example, check_trace=False
        )
    _put_weights(recorded, {name: tensor.to("meta") for name, tensor in weights.items()})
    return recording


def _first_difference(transformer: PreTrainedModel, traced: TracedTransformer) -> str | None:
    """Return in what their answers differ; None: in nothing."""
    for num_texts, width in _CHECKED:
        for is_padded in (False, True):
            ids, mask = _batch(num_texts, min(width, window_of(transformer)), is_padded=is_padded)
            wanted, found = (
                each(input_ids=ids, attention_mask=mask).last_hidden_state
                for each in (transformer, traced)
            )
            if not torch.equal(wanted, found):
                padded = "padded" if is_padded else "full"
                return f"other vectors for {num_texts} {padded} texts of {ids.shape[1]} tokens"
    return None


def _batch(num_texts: int, width: int, *, is_padded: bool) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask; the first text is padded to the length of the others."""
    # Ids that every vocabulary has; 1 is often the padding's, which some encoders look for.
    ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
    mask = torch.ones_like(ids)
    if is_padded:
        mask[0, (width + 1) // 2 :] = 0
    return ids, mask
