"""Leaving out of an encoder what its vocabulary has for other languages than the corpus's.

Four fifths of the weights of a small multilingual encoder are embeddings of pieces of words. Each
pretokenized word of a unigram tokenizer is cut into the pieces of the largest total score, so that
texts whose pieces are all kept have the same pieces as before, and the same vectors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from tokenizers import Tokenizer
from transformers import TokenizersBackend

from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.training.data.chunks import chunks

logger = logging.getLogger(__name__)

_LEAST_PIECES = 100_000
"""A smaller vocabulary stays whole."""
_MOST_KEPT = 0.5
"""Share of the pieces; where more would be kept, all are."""


def kept_pieces(
    tokenizer: TokenizersBackend, texts: Iterable[str]
) -> Int64[np.ndarray, kept] | None:
    """Return the ids of the pieces that an encoder of a corpus needs, rising; None: of all.

    These are the pieces of the texts, all special tokens, and all characters that are pieces, into
    which words of other texts fall apart.

    Args:
        tokenizer: The encoder's.
        texts: All texts of the corpus, with their prefixes, uncut.
    """
    if len(tokenizer) < _LEAST_PIECES:
        return None
    backend = tokenizer.backend_tokenizer
    model = json.loads(backend.to_str())["model"]
    if model["type"] != "Unigram":
        return None
    pieces = [piece for piece, _ in model["vocab"]]
    is_kept = np.zeros(max(len(tokenizer), len(pieces)), dtype=np.bool_)
    is_kept[: len(pieces)] = _are_basic(pieces, bool(model.get("byte_fallback")))
    is_kept[[*tokenizer.all_special_ids, *backend.get_added_tokens_decoder()]] = True
    # The lowest score decides that of an unknown character.
    is_kept[int(np.argmin([score for _, score in model["vocab"]]))] = True
    for chunk in chunks(texts):
        for encoding in backend.encode_batch_fast(chunk):
            is_kept[encoding.ids] = True
    kept = np.flatnonzero(is_kept)
    first = [*backend.encode("").ids, model["unk_id"], tokenizer.pad_token_id or 0]
    if len(kept) > _MOST_KEPT * len(is_kept) or not is_kept[: max(first) + 1].all():
        return None
    logger.info("encoder: %d of %d pieces of words are kept", len(kept), len(is_kept))
    return kept


def _are_basic(pieces: list[str], has_bytes: bool) -> Bool[np.ndarray, piece]:
    """Return which pieces are characters or bytes, or have a character that is no piece itself."""
    characters = {piece for piece in pieces if len(piece) == 1}
    basic = [
        len(piece) == 1
        or not characters.issuperset(piece)
        or (has_bytes and len(piece) == len("<0x00>") and piece.startswith("<0x"))
        for piece in pieces
    ]
    return np.array(basic, dtype=np.bool_)


def tokenizer_of(tokenizer: TokenizersBackend, kept: Int64[np.ndarray, kept]) -> TokenizersBackend:
    """Return a tokenizer of the kept pieces alone, whose ids are their places."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    place = {old: new for new, old in enumerate(kept.tolist())}
    content["model"]["vocab"] = [vocabulary[old] for old in place if old < len(vocabulary)]
    for token in content["added_tokens"]:
        token["id"] = place[token["id"]]
    backend = Tokenizer.from_str(json.dumps(content))
    make: Any = TokenizersBackend  # without annotations
    pruned: TokenizersBackend = make(tokenizer_object=backend, **tokenizer.special_tokens_map)
    return pruned


def keep_embeddings(encoder: DualEncoder, kept: Int64[np.ndarray, kept]) -> None:
    """Leave an encoder the embeddings of the kept pieces, in place."""
    transformer: Any = encoder.transformer
    rows = transformer.get_input_embeddings().weight[torch.from_numpy(kept)].detach().clone()
    transformer.resize_token_embeddings(len(kept))
    with torch.no_grad():
        transformer.get_input_embeddings().weight.copy_(rows)
    encoder.num_token_ids = len(kept)
