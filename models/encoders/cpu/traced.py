"""Encoders whose forward pass is one call: the same operations, without Python between.

A small encoder on a few short texts is some hundred operations of some ten microseconds each. Run
from Python, each of them takes and leaves the interpreter's lock, which a service's event loop
wants too; and Python itself takes a millisecond a batch. Recorded once and replayed by PyTorch, the
whole pass leaves the lock alone.

A recording takes the weights with every call. So one serves all encoders of an architecture, such
as the versions of a model, and none of them is held by it: PyTorch never frees a recording.

In bfloat16 the weights of linear layers are kept in the order in which oneDNN multiplies them, and
encoders of BERT's architecture are not recorded but computed without padding
(`models.encoders.cpu.unpadded`). Of others, attention is computed by two matrix products and a
softmax (`models.encoders.cpu.attention`). The bits are others then, but no further from those of
float32.
"""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from models.encoders.cpu.attention import use_short_attention
from models.encoders.cpu.torch_internals import can_pack, compiled, held_outside_of_python, packed
from models.encoders.cpu.unpadded import UnpaddedBert
from models.encoders.pretrained import window_of

logger = logging.getLogger(__name__)

Recording = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""From token ids, their mask, and the weights in order, to the last layer, and the first two again,
so that none of their references goes before its end (see `held_outside_of_python`)."""

_RECORDED = (2, 7)
"""Texts and tokens of the batch that is recorded; the first text has padding."""
_CHECKED = ((1, 3), (1, 40), (3, 12), (5, 33), (2, 130))
"""And of those on which the recording is compared with the encoder, with padding and without."""

_MOST_ERROR = 1.5
"""Distance from the vectors of float32 that a recording of other bits may have, as a multiple of
the encoder's own in its precision; with `models.encoders.cpu.attention` it is 1.02 to 1.03."""

_SMALL = 256
"""Tokens of a batch, padding included, up to which its width is made a multiple of `_STEP`."""
_STEP = 8
"""oneDNN compiles half a dozen kernels for each shape that it does not remember, which takes a
tenth of the time of a single text. With fewer shapes it remembers most of them."""

_recordings: dict[str, Recording] = {}
_lock = Lock()


@dataclass(frozen=True, slots=True)
class Way:
    """How an encoder is recorded.

    Attributes:
        is_packed: Whether weights of linear layers are in the order of oneDNN.
        is_short: Whether attention is that of `models.encoders.cpu.attention`.
        name: For the log.
        is_unpadded: Whether it is not recorded, but computed by `models.encoders.cpu.unpadded`.
    """

    is_packed: bool
    is_short: bool
    name: str
    is_unpadded: bool = False

    @property
    def has_same_bits(self) -> bool:
        """Whether the vectors are to be those of the encoder, to the bit."""
        return not (self.is_short or self.is_unpadded)


class TracedTransformer(nn.Module):
    """Stands in for the transformer of a `DualEncoder`; only for inference.

    Attributes:
        config: The transformer's.
        dtype: What it computes in.
        way: How it was recorded.
    """

    def __init__(
        self,
        transformer: PreTrainedModel,
        recording: Recording,
        weights: Iterable[Tensor],
        way: Way,
    ) -> None:
        """Take a transformer, the recording of its architecture, and its weights in order."""
        super().__init__()
        self.config = transformer.config
        self.dtype = transformer.dtype
        self.way = way
        self._window = window_of(transformer)
        self._weights = tuple(weights)
        self._held = held_outside_of_python(self._weights)
        self._recording = recording

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Int[Tensor, "batch token"]
    ) -> BaseModelOutput:
        """Return the last layer, as the transformer itself does."""
        width = input_ids.shape[1]
        if self.way.is_short and input_ids.numel() <= _SMALL:
            columns = (0, min(-width % _STEP, self._window - width))
            input_ids, attention_mask = pad(input_ids, columns), pad(attention_mask, columns)
        hidden, _, _ = self._recording(input_ids, attention_mask, *self._weights)
        return BaseModelOutput(last_hidden_state=hidden[:, :width])


StandIn = TracedTransformer | UnpaddedBert

_WAYS = (
    Way(is_packed=True, is_short=True, name="without padding", is_unpadded=True),
    Way(is_packed=True, is_short=True, name="with attention for short texts"),
    Way(is_packed=True, is_short=False, name="with packed weights"),
    Way(is_packed=False, is_short=False, name="as it is"),
)
"""The fastest first."""


@torch.inference_mode()
def trace_transformer(transformer: PreTrainedModel) -> StandIn | None:
    """Return a transformer's stand-in; None where it can't be recorded, or answers differently.

    Some encoders decide by the shape or the values of a batch what they do next, which a recording
    can't; so its answers are compared, on batches of other shapes than the recorded one.

    Args:
        transformer: On the CPU, in evaluation mode.
    """
    for way in _WAYS if can_pack(transformer.dtype) else _WAYS[-1:]:
        try:
            traced = UnpaddedBert(transformer) if way.is_unpadded else _traced(transformer, way)
            compare = _first_difference if way.has_same_bits else _too_far
            found = compare(transformer, traced)
        except Exception as error:  # noqa: BLE001  # whatever a foreign encoder does, it works as it is
            found = f"{type(error).__name__}: {str(error)[:200]}"
        if found is None:
            return traced
        level = logging.WARNING if way.has_same_bits else logging.INFO  # few are of all kinds
        logger.log(level, "the encoder is not recorded %s: %s", way.name, found)
    logger.warning("the encoder runs step by step, which takes longer")
    return None


def _traced(transformer: PreTrainedModel, way: Way) -> TracedTransformer:
    """Return it with the recording of its architecture, which is made when first asked for."""
    weights = _weights_of(transformer)
    shapes = {name: (tuple(each.shape), each.dtype) for name, each in weights.items()}
    attention = transformer.config._attn_implementation
    key = f"{transformer.config.to_json_string()} {attention} {way} {shapes}"
    if way.is_packed:
        for name in _linear_layers(transformer):
            weights[f"{name}.weight"] = packed(weights[f"{name}.weight"])
    with _lock:
        if key not in _recordings:
            _recordings[key] = _record(transformer, weights, way)
        recording = _recordings[key]
    return TracedTransformer(transformer, recording, weights.values(), way)


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


def _record(transformer: PreTrainedModel, weights: dict[str, Tensor], way: Way) -> Recording:
    recorded = copy.deepcopy(transformer)
    if way.is_short:
        use_short_attention(recorded)
    if way.is_packed:
        for name in _linear_layers(transformer):
            recorded.set_submodule(name, _PackedLinear())
    names = tuple(weights)

    def last_layer(
        ids: Int[Tensor, "batch token"], mask: Int[Tensor, "batch token"], *tensors: Tensor
    ) -> tuple[Float[Tensor, "batch token dim"], Tensor, Tensor]:
        _put_weights(recorded, dict(zip(names, tensors, strict=True)))
        hidden: Tensor = recorded(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden, ids, mask

    example = (*_batch(*_RECORDED, is_padded=True), *weights.values())
    with warnings.catch_warnings():
        # What may go wrong is what `_first_difference` looks for. PyTorch's successor of the
        # function needs a compiler to get rid of Python.
        warnings.simplefilter("ignore")
        recording: Recording = torch.jit.trace(  # type: ignore[no-untyped-call]
            last_layer, example, check_trace=False
        )
    _put_weights(recorded, dict.fromkeys(names, torch.empty(0, device="meta")))
    return recording


class _PackedLinear(nn.Module):
    """A linear layer whose weights are in the order of oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: Tensor = nn.Parameter()  # of a call
        self.bias: Tensor = nn.Parameter()

    def forward(self, inputs: Float[Tensor, "... dim"]) -> Float[Tensor, "... out"]:
        """Return what the layer would have."""
        product: Tensor = compiled(_packed_product)(inputs, self.weight, self.bias)
        return product


def _packed_product(  # pragma: no cover  # no tracer sees what PyTorch compiles
    inputs: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return inputs times packed weights, and the bias; what Inductor uses for frozen weights."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def _linear_layers(transformer: nn.Module) -> list[str]:
    """Return the names of its plain linear layers with a bias."""
    return [
        name
        for name, module in transformer.named_modules()
        if type(module) is nn.Linear and module.bias is not None
    ]


def _first_difference(transformer: PreTrainedModel, traced: StandIn) -> str | None:
    """Return in what their answers differ; None: in nothing."""
    for batch, what in _checks(window_of(transformer)):
        wanted, found = (each(**batch).last_hidden_state for each in (transformer, traced))
        if not torch.equal(wanted, found):
            return f"other vectors for {what}"
    return None


def _too_far(transformer: PreTrainedModel, traced: StandIn) -> str | None:
    """Return in what its answers are further from those of float32 than the transformer's own.

    Over all batches together: by chance, one vector of few dimensions may be twice as far.
    """
    exact: nn.Module = copy.deepcopy(transformer)
    exact.to(torch.float32)
    distances: dict[str, list[tuple[float, float]]] = {"tokens": [], "first tokens": []}
    for batch, _ in _checks(window_of(transformer)):
        wanted, usual, found = (
            each(**batch).last_hidden_state.float() for each in (exact, transformer, traced)
        )
        is_real = batch["attention_mask"].bool()
        compared = {"tokens": (wanted[is_real], usual[is_real], found[is_real])}
        if isinstance(traced, UnpaddedBert):
            first = traced.first_states(**batch).float()
            compared["first tokens"] = (wanted[:, 0], usual[:, 0], first)
        for what, (vectors, *others) in compared.items():
            own, its = ((each - vectors).norm().item() for each in others)
            distances[what].append((own, its))
    for what, pairs in distances.items():
        own, its = (math.hypot(*each) for each in zip(*pairs, strict=True)) if pairs else (0, 0)
        if not its <= _MOST_ERROR * own:
            return (
                f"its vectors of {what} are {its:.3g} away from those of float32, and {own:.3g} "
                "step by step"
            )
    return None


def _checks(window: int) -> Iterator[tuple[dict[str, Tensor], str]]:
    """Yield batches that a recording is tried on, and what they are."""
    for num_texts, most in _CHECKED:
        width = min(most, window)
        for is_padded in (False, True):
            ids, mask = _batch(num_texts, width, is_padded=is_padded)
            padded = "padded" if is_padded else "full"
            what = f"{num_texts} {padded} texts of {width} tokens"
            yield {"input_ids": ids, "attention_mask": mask}, what


def _batch(num_texts: int, width: int, *, is_padded: bool) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask; the first text is padded to the length of the others."""
    # Ids that every vocabulary has; 1 is often the padding's, which some encoders look for.
    ids = 2 + torch.arange(num_texts * width).reshape(num_texts, width) % 97
    mask = torch.ones_like(ids)
    if is_padded:
        mask[0, (width + 1) // 2 :] = 0
    return ids, mask
