"""The dual encoder of DEPL (Zhang et al. 2023, section 3.3): one transformer, two poolers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from longtail.models.encoders.bert import can_pack, first_states, last_layer
from longtail.models.encoders.check import num_token_ids
from longtail.models.encoders.cpu.unpadded import UnpaddedBert
from longtail.models.encoders.families import Transformer, VectorHead, is_transformer, pooled
from longtail.models.encoders.tokens import TokenBatch, TokenizedTexts
from longtail.models.errors import ignore
from longtail.models.names import Pooling

Role = Literal["document", "label"]
DEPL_HEAD = VectorHead()
_ENCODE_TOKENS = 4096  # tokens in one batch of `encode_all`, padding included
_ENCODE_TOKENS_ON_GPU = 16_384


class DualEncoder(nn.Module):
    """Maps documents and label texts into one vector space.

    f_dual(x, l) = s <phi_doc(x), phi_label(text(l))> + b. The scalars s and b are ours (as in the
    sigmoid loss of Zhai et al. 2023): the paper has s = 1, b = 0. They change no ranking, but
    with them the sigmoids of the loss start near the share of positives and not at one half.
    """

    def __init__(
        self,
        transformer: Transformer,
        head: VectorHead = DEPL_HEAD,
        dim: int | None = None,
    ) -> None:
        """Take a transformer; both poolers start as the identity map.

        Args:
            transformer: Shared by documents and labels.
            head: How vectors are made of its last layer.
            dim: The vectors' dimension; None: that of the last layer. With another one, poolers
                start as the identity map of the numbers that both have.
        """
        super().__init__()
        self.transformer = transformer
        self.head = head
        is_whole = is_transformer(transformer)
        self.num_token_ids = num_token_ids(transformer) if is_whole else sys.maxsize
        hidden_dim = int(transformer.config.hidden_size)
        self.dim = hidden_dim if dim is None else dim
        self.document_pooler = _identity(hidden_dim, self.dim)
        self.label_pooler = _identity(hidden_dim, self.dim)
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.score_bias = nn.Parameter(torch.zeros(()))

    def forward(self, batch: TokenBatch, role: Role) -> Float[Tensor, "batch dim"]:
        """Return phi_doc or phi_label of a batch of texts.

        Documents: W_doc BERT(x, [CLS]) + b_doc. Labels: the mean of the last layer over the text's
        tokens, [CLS] and [SEP] included (DEPL Eq. 2 does not say); then W_label and b_label
        (Eq. 1). Another `head` pools otherwise, and may turn the result into one of an activation,
        or of one length.
        """
        if role == "label":
            label: Tensor = self.label_pooler(self._pooled(batch, self.head.label_pooling))
            return self.head.finished(label)
        if self.head.document_pooling == "cls":
            states = self._first_states(batch)
        else:
            states = self._pooled(batch, self.head.document_pooling)
        document: Tensor = self.document_pooler(states)
        return self.head.finished(document)

    def _first_states(self, batch: TokenBatch) -> Float[Tensor, "batch dim"]:
        """Return BERT(x, [CLS]): the last layer at the first token of each text."""
        given = {"input_ids": batch.ids, "attention_mask": batch.mask}
        if isinstance(self.transformer, UnpaddedBert):  # it needn't compute the others
            return self.transformer.first_states(**given)
        if torch.is_grad_enabled() and can_pack(self.transformer, batch):
            return first_states(self.transformer, batch)
        first: Tensor = self.transformer(**given).last_hidden_state[:, 0]
        return first

    def _pooled(self, batch: TokenBatch, pooling: Pooling) -> Float[Tensor, "batch dim"]:
        """Return what stands for each text of a batch (psi_bert of DEPL Eq. 2)."""
        if torch.is_grad_enabled() and can_pack(self.transformer, batch):
            hidden = last_layer(self.transformer, batch)
        else:
            given = {"input_ids": batch.ids, "attention_mask": batch.mask}
            hidden = self.transformer(**given).last_hidden_state
        return pooled(hidden, batch.mask, pooling)

    def scores(
        self, documents: Float[Tensor, "batch dim"], labels: Float[Tensor, "sampled dim"]
    ) -> Float[Tensor, "batch sampled"]:
        """Return f_dual of each document and label."""
        return self.log_scale.exp() * (documents @ labels.T) + self.score_bias


def encode_all(
    model: DualEncoder,
    tokens: TokenizedTexts,
    role: Role,
    *,
    pad_id: int,
    device: str = "cpu",
    progress: Callable[[int], object] = ignore,
) -> Float32[np.ndarray, "text dim"]:
    """Return the vectors of many texts, in their order, in float32.

    Texts of like length go into one batch, which wastes little on padding. On processors several
    batches are encoded at once, one thread each: threads inside one operation wait for each other
    at the end of each, which takes long where other processes use the processor too.

    Args:
        model: Left in evaluation mode.
        tokens: The texts.
        role: Whether they are documents or labels.
        pad_id: The tokenizer's padding id.
        device: Where the model is.
        progress: Called with the number of texts done after every batch.
    """
    model.eval()
    vectors = np.empty((len(tokens), model.dim), dtype=np.float32)
    order = np.argsort(tokens.lengths, kind="stable")
    most_tokens = _ENCODE_TOKENS if device == "cpu" else _ENCODE_TOKENS_ON_GPU
    batches = _batches(order, tokens.lengths[order], most_tokens)

    def encode(rows: Int64[np.ndarray, batch]) -> None:
        with torch.inference_mode():
            batch = model(tokens.batch(rows, pad_id, device), role)
            vectors[rows] = batch.float().cpu().numpy()

    num_threads = torch.get_num_threads() if device == "cpu" else 1
    if min(num_threads, len(batches)) <= 1:
        for rows in batches:
            encode(rows)
            progress(len(rows))
        return vectors
    try:
        with ThreadPoolExecutor(num_threads, initializer=_use_one_thread) as threads:
            try:
                for rows, _ in zip(batches, threads.map(encode, batches), strict=True):
                    progress(len(rows))
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(num_threads)
    return vectors


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _batches(
    order: Int64[np.ndarray, text], lengths: np.ndarray, most_tokens: int
) -> list[Int64[np.ndarray, batch]]:
    """Return the largest batches within the token budget, padding included; lengths rise."""
    batches, start = [], 0
    while start < len(order):
        ahead = lengths[start : start + most_tokens]
        sizes = np.arange(1, len(ahead) + 1) * ahead
        end = start + max(1, int(np.searchsorted(sizes, most_tokens, side="right")))
        batches.append(order[start:end])
        start = end
    return batches


def _identity(hidden_dim: int, dim: int) -> nn.Linear:
    linear = nn.Linear(hidden_dim, dim)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(dim, hidden_dim))
        linear.bias.zero_()
    return linear
