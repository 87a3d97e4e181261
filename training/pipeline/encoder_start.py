"""From an encoder's folder to the dual encoder that training starts from.

What the encoder was trained with decides how its vectors are made, unless the configuration does:
sentence-transformers says it in files of its own, and of other encoders the family tells.

A vocabulary may be cut to the pieces of words that the documents have: four fifths of the weights
of a small multilingual encoder are embeddings of pieces. Each
pretokenized word of a unigram tokenizer is cut into the pieces of the largest total score, so that
texts whose pieces are all kept have the same pieces as before, and the same vectors.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedModel, TokenizersBackend

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import EncoderInfo
from longtail.models.encoders.check import check_pooling, is_causal
from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.families import Tokenizer, VectorHead, num_positions
from longtail.models.encoders.pretrained import (
    MULTILINGUAL_ID,
    PACKAGED,
    EncoderSource,
    find_encoder,
    load_tokenizer,
    load_transformer,
    num_leading,
)
from longtail.models.encoders.sentence_modules import (
    DenseLayer,
    SentenceModules,
    read_sentence_modules,
)
from longtail.models.encoders.tokens import Prefixes
from longtail.models.errors import ConfigError, LongtailError
from longtail.models.names import LINEAR, Pooling
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.training.configuration.run import AUTO, TrainingConfig
from longtail.training.data.chunks import chunks
from longtail.training.neural.model import DeplModel, checkpoint_gradients, freeze_layers
from longtail.training.pipeline.encoder_check import check_encoder
from longtail.training.runtime.distributed import (
    ALONE,
    Machine,
    Processes,
    find_machine,
    forked_random,
)

logger = logging.getLogger(__name__)

_MULTILINGUAL_PREFIXES = Prefixes(document="query: ", label="passage: ")
"""Prefixes that multilingual-e5-small was trained with; its files on the hub lack them."""


@dataclass(frozen=True, slots=True)
class DenseStart:
    """What the dense half starts from.

    Attributes:
        source: Where the encoder lies.
        machine: Where and how precisely it is trained.
        tokenizer: The encoder's.
        model: The encoder and a classifier at the labels' priors; trained in place.
        prefixes: Put before documents and label texts.
        finished: The models of a version whose encoder it is; None: it is to be trained.
    """

    source: EncoderSource
    machine: Machine
    tokenizer: Tokenizer
    model: DeplModel
    prefixes: Prefixes
    finished: Mapping[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the encoder is that of a version, and stays as it is."""
        return self.finished is not None

    def info(self, dense: DenseParts) -> EncoderInfo:
        """Return what a manifest says of the encoder."""
        head = dense.encoder.head
        return EncoderInfo(
            name=self.source.name,
            dim=dense.encoder.dim,
            max_tokens=dense.max_tokens,
            sha256=self.source.sha256,
            document_prefix=self.prefixes.document,
            label_prefix=self.prefixes.label,
            document_pooling=head.document_pooling,
            activation=head.activation,
            is_normalized=head.is_normalized,
            is_tuned=dense.is_tuned,
        )


def start_dense(
    config: TrainingConfig,
    truth: Float32[csr_array, "document label"],
    processes: Processes | None = None,
    sample: Sequence[str] = (),
) -> DenseStart:
    """Find, load and check the encoder, and return the untrained model.

    Args:
        config: The run's configuration.
        truth: The labels of its documents.
        processes: Those that train together; None: this one is alone.
        sample: Training texts, none of them blank, that the tokenizer has to know.
    """
    config.retrieval.check(truth.shape[1])
    if LINEAR in config.scorers:
        linear = config.linear.fitted_to(len(np.unique(truth.indices)))
        if linear.learning is not None:
            linear.learning.check(truth.shape[1], num_hard=0)
    machine = find_machine(config.precision, processes or ALONE)
    source = find_encoder(PACKAGED if config.encoder == AUTO else config.encoder)
    with Machine.reproducible():
        try:
            tokenizer, encoder, prefixes = _loaded(source, config)
        except LongtailError:  # says what it is already
            raise
        except Exception as error:  # the libraries raise whatever they meet in foreign files
            reason = str(error).strip().partition("\n")[0][:200]
            raise ConfigError(
                f"encoder {source.name!r}: its files in {str(source.folder)!r} can't be loaded "
                f"({type(error).__name__}: {reason}); expected a text encoder that Transformers "
                "knows, with config.json, *.safetensors and tokenizer.json"
            ) from error
        most_tokens = num_positions(encoder.transformer)
        for name, expected in (
            ("document_max_tokens", config.document_max_tokens),
            ("descriptions.max_tokens", config.descriptions.max_tokens),
        ):
            if expected > most_tokens:
                raise ConfigError(
                    f"{name} is {expected}, but encoder {source.name!r} reads at most "
                    f"{most_tokens} tokens"
                )
        freeze_layers(encoder, config.frozen_layers)
        if config.gradient_checkpointing:
            checkpoint_gradients(encoder)
        model = DeplModel(encoder, _priors(truth)).to(machine.device)
        check_encoder(source.name, tokenizer, config, sample)
    return DenseStart(source, machine, tokenizer, model, prefixes)


def start_finished(
    bundle: Bundle,
    parts: ModelParts,
    config: TrainingConfig,
    truth: Float32[csr_array, "document label"],
) -> DenseStart:
    """Return a start that is done: the encoder of a version.

    Args:
        bundle: The version.
        parts: What it holds, an encoder among it.
        config: The run's configuration.
        truth: The labels of its documents.
    """
    dense, said = parts.dense, bundle.manifest.encoder
    assert dense is not None and said is not None  # both or neither: see `check_parts`
    machine = find_machine(config.precision)
    model = DeplModel(dense.encoder, _priors(truth)).to(machine.device)
    source = EncoderSource(said.name, bundle.encoder_folder, said.sha256)
    prefixes = Prefixes(said.document_prefix, said.label_prefix)
    return DenseStart(source, machine, dense.tokenizer, model, prefixes, parts.models)


def _priors(truth: Float32[csr_array, "document label"]) -> Float32[np.ndarray, label]:
    """Return the share of documents with each label, half a document added on either side."""
    num_documents, num_labels = truth.shape
    counts = np.bincount(truth.indices, minlength=num_labels).astype(np.float32)
    shares: Float32[np.ndarray, label] = (counts + 0.5) / np.float32(num_documents + 1)
    return shares


def _loaded(
    source: EncoderSource, config: TrainingConfig
) -> tuple[TokenizersBackend, DualEncoder, Prefixes]:
    tokenizer = load_tokenizer(source.folder)
    # The packaged one is used as DEPL uses BERT, which all published figures are of.
    is_depl = source.name == PACKAGED and config.is_tuned
    modules = SentenceModules() if is_depl else read_sentence_modules(source.folder)
    with forked_random(config.seed):  # of weights that the encoder's files lack
        transformer = load_transformer(source.folder)
        head = _head(transformer, tokenizer, modules, config)
        check_pooling(transformer, head, source.folder)
        dim = None if modules.dense is None else len(modules.dense.weight)
        encoder = DualEncoder(transformer, head, dim)
    if modules.dense is not None:
        _start_poolers(encoder, modules.dense, source.folder)
    if not config.is_tuned:
        _score_by_cosine(encoder)
    prefixes = _prefixes(source, modules, config)
    _check_prefixes(source, tokenizer, prefixes, modules, config)
    logger.info("encoder %r: %s, %s", source.name, head, prefixes)
    return tokenizer, encoder, prefixes


@torch.no_grad()
def _score_by_cosine(encoder: DualEncoder) -> None:
    """Let scores be 20 cos - 10, of vectors of length sqrt(dim): the log-odds that dev corrects."""
    encoder.log_scale.fill_(math.log(20 / encoder.dim))
    encoder.score_bias.fill_(-10)


def _head(
    transformer: PreTrainedModel,
    tokenizer: TokenizersBackend,
    modules: SentenceModules,
    config: TrainingConfig,
) -> VectorHead:
    """Return how vectors are made: as configured, else as the encoder's files say, else as DEPL.

    Where nothing is said, a decoder's texts are their last token, since no other sees all; and
    documents are the mean of their tokens where none is before a text, as [CLS] does in BERT.
    """
    documents: Pooling = "cls" if num_leading(tokenizer) else "mean"
    labels: Pooling = "mean"
    if modules.pooling is not None:
        documents = labels = modules.pooling
    elif is_causal(transformer):
        documents = labels = "last"
    head = VectorHead(
        document_pooling=config.document_pooling or documents,
        label_pooling=config.retrieval.label_pooling or labels,
        activation="identity" if modules.dense is None else modules.dense.activation,
        is_normalized=modules.is_normalized or not config.is_tuned,
    )
    _check_words(tokenizer, head)
    _check_untrained(head, modules, config)
    return head


def _check_untrained(head: VectorHead, modules: SentenceModules, config: TrainingConfig) -> None:
    poolings = head.document_pooling, head.label_pooling
    is_comparable = modules.pooling is not None and poolings[0] == poolings[1]
    if config.retrieval.epochs == 0 and not is_comparable:
        raise ConfigError(
            f"retrieval.epochs: got 0 for encoder {config.encoder!r}, with documents pooled by "
            f"{poolings[0]!r} and labels by {poolings[1]!r}; without training, vectors can be "
            "compared only of a model of sentence-transformers (modules.json) and with one pooling "
            "for both; name such a folder, or train at least one epoch"
        )


def _check_words(tokenizer: TokenizersBackend, head: VectorHead) -> None:
    """Refuse the mean over words where the tokens at both ends of a text may be words."""
    ends = num_leading(tokenizer), tokenizer.num_special_tokens_to_add()
    if "words" in (head.document_pooling, head.label_pooling) and ends != (1, 2):
        raise ConfigError(
            f"pooling 'words': the tokenizer puts {ends[0]} special tokens before a text and "
            f"{ends[1] - ends[0]} behind it, expected 1 and 1, as [CLS] and [SEP] in BERT; take "
            "'mean'"
        )


@torch.no_grad()
def _start_poolers(encoder: DualEncoder, dense: DenseLayer, folder: Path) -> None:
    expected = tuple(encoder.document_pooler.weight.shape)
    if tuple(dense.weight.shape) != expected:
        raise ConfigError(
            f"encoder in {str(folder)!r}: its Dense layers read vectors of {dense.weight.shape[1]} "
            f"numbers, but its transformer makes {expected[1]}; put together what belongs together"
        )
    for pooler in (encoder.document_pooler, encoder.label_pooler):
        pooler.weight.copy_(dense.weight)
        pooler.bias.copy_(dense.bias)


def _prefixes(source: EncoderSource, modules: SentenceModules, config: TrainingConfig) -> Prefixes:
    own = modules.prefixes
    if own == Prefixes() and source.name in (MULTILINGUAL_ID, Path(MULTILINGUAL_ID).name):
        own = _MULTILINGUAL_PREFIXES
    given = {"document": config.document_prefix, "label": config.label_prefix}
    return replace(own, **{name: prefix for name, prefix in given.items() if prefix is not None})


def _check_prefixes(
    source: EncoderSource,
    tokenizer: TokenizersBackend,
    prefixes: Prefixes,
    modules: SentenceModules,
    config: TrainingConfig,
) -> None:
    """Refuse prefixes that leave no room for a text, or that the encoder does not pool."""
    if not modules.pools_prefix and prefixes != Prefixes():
        raise ConfigError(
            f"encoder {source.name!r}: it leaves the prefix of a text out of its vector "
            "(include_prompt), which is not done here; set document_prefix and label_prefix to ''"
        )
    num_special = tokenizer.num_special_tokens_to_add()
    for name, prefix, setting, most in (
        ("document_prefix", prefixes.document, "document_max_tokens", config.document_max_tokens),
        ("label_prefix", prefixes.label, "descriptions.max_tokens", config.descriptions.max_tokens),
    ):
        num_prefix = len(tokenizer.backend_tokenizer.encode(prefix, add_special_tokens=False).ids)
        if num_special + num_prefix >= most:
            raise ConfigError(
                f"{name} {prefix!r} has {num_prefix} tokens, but {setting} is {most}, "
                f"{num_special} of them special, which leaves none for a text; raise {setting}, "
                f"or set {name} to ''"
            )


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
    backend = Backend.from_str(json.dumps(content))
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
