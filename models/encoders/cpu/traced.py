"""Encoders whose forward pass is one call: the same operations, without Python between.

A small encoder on a few short texts is some hundred operations of some ten microseconds each. Run
from Python, each of them takes and leaves the interpreter's lock, which a service's event loop
wants too; and Python itself takes a millisecond a batch. Traced once and replayed by PyTorch, the
whole pass leaves the lock alone. The bits are the encoder's.

A trace takes the weights with every call. So one serves all encoders of an architecture, such as
the versions of a model, and none of them is held by it: PyTorch never frees a trace.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from threading import Lock

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from longtail.models.encoders.cpu.torch_internals import held_outside_of_python, put_weights, traced

Trace = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""From token ids, their mask, and the weights in order, to the last layer, and the first two again,
so that none of their references goes before its end (see `held_outside_of_python`)."""

_EXAMPLE_IDS = ((2, 3, 4, 5, 6, 7, 8), (9, 10, 11, 12, 13, 14, 15))
"""Of the batch that is traced; every vocabulary has them."""
_EXAMPLE_MASK = ((1, 1, 1, 1, 0, 0, 0), (1, 1, 1, 1, 1, 1, 1))

_traces: dict[str, Trace] = {}
_lock = Lock()


class TracedTransformer(nn.Module):
    """Stands in for the transformer of a `DualEncoder`; only for inference.

    Attributes:
        config: The transformer's.
        dtype: What it computes in.
    """

    def __init__(
        self, transformer: PreTrainedModel, trace: Trace, weights: Iterable[Tensor]
    ) -> None:
        """Take a transformer, the trace of its architecture, and its weights in order."""
        super().__init__()
        self.config = transformer.config
        self.dtype = transformer.dtype
        self._weights = tuple(weights)
        self._held = held_outside_of_python(self._weights)
        self._trace = trace

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> BaseModelOutput:
        """Return the last layer, as the transformer itself does."""
        hidden, _, _ = self._trace(input_ids, attention_mask, *self._weights)
        return BaseModelOutput(last_hidden_state=hidden)


def trace_transformer(transformer: PreTrainedModel) -> TracedTransformer:
    """Return a transformer with the trace of its architecture, which is made when first asked for.

    Some encoders decide by the shape or the values of a batch what they do next, which a trace
    can't: compare its answers (`longtail.models.encoders.cpu.backend` does).

    Args:
        transformer: On the CPU, in evaluation mode.
    """
    weights = _weights_of(transformer)
    shapes = {name: (tuple(each.shape), each.dtype) for name, each in weights.items()}
    attention = transformer.config._attn_implementation  # not in the JSON of the configuration
    key = f"{transformer.config.to_json_string()} {attention} {shapes}"
    with _lock:
        if key not in _traces:
            _traces[key] = _trace_of(transformer, weights)
        trace = _traces[key]
    return TracedTransformer(transformer, trace, weights.values())


def _weights_of(transformer: nn.Module) -> dict[str, Tensor]:
    """Return all that its modules hold, by name; what several of them share, once for each."""
    parameters = transformer.named_parameters(remove_duplicate=False)
    buffers = transformer.named_buffers(remove_duplicate=False)
    return {name: tensor.detach() for name, tensor in (*parameters, *buffers)}


def _trace_of(transformer: PreTrainedModel, weights: dict[str, Tensor]) -> Trace:
    copied = copy.deepcopy(transformer)
    names = tuple(weights)

    def last_layer(
        ids: Int[Tensor, "batch token"], mask: Int[Tensor, "batch token"], *tensors: Tensor
    ) -> tuple[Float[Tensor, "batch token dim"], Tensor, Tensor]:
        put_weights(copied, dict(zip(names, tensors, strict=True)))
        hidden: Tensor = copied(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden, ids, mask

    example = (torch.tensor(_EXAMPLE_IDS), torch.tensor(_EXAMPLE_MASK), *weights.values())
    trace: Trace = traced(last_layer, example)
    put_weights(copied, dict.fromkeys(names, torch.empty(0, device="meta")))  # it holds none
    return trace
