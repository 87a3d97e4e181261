"""From an encoder's folder to the dual encoder that training starts from.

What the encoder was trained with decides how its vectors are made, unless the configuration does:
sentence-transformers says it in files of its own, and of other encoders the family tells.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedModel, TokenizersBackend

from longtail.models.encoders.check import check_pooling, is_causal, reason_of
from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.families import VectorHead
from longtail.models.encoders.pretrained import (
    MULTILINGUAL_ID,
    PACKAGED,
    EncoderSource,
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
from longtail.models.names import Pooling
from longtail.training.configuration.run import TrainingConfig
from longtail.training.runtime.distributed import forked_random

logger = logging.getLogger(__name__)

_MULTILINGUAL_PREFIXES = Prefixes(document="query: ", label="passage: ")
"""Of the training of multilingual-e5-small, whose files on the hub lack them."""


@dataclass(frozen=True, slots=True)
class StartingEncoder:
    """What training starts from.

    Attributes:
        tokenizer: The encoder's.
        encoder: The dual encoder.
        prefixes: Put before its texts.
    """

    tokenizer: TokenizersBackend
    encoder: DualEncoder
    prefixes: Prefixes


def load_encoder(source: EncoderSource, config: TrainingConfig) -> StartingEncoder:
    """Return the tokenizer of an encoder, and the dual encoder that starts from it.

    Raises:
        ConfigError: They can't be loaded, or not used as they or the configuration want it.
    """
    try:
        return _loaded(source, config)
    except Exception as error:  # the libraries raise whatever they meet in foreign files
        if isinstance(error, LongtailError):  # says what it is already
            raise
        raise ConfigError(
            f"encoder {source.name!r}: its files in {str(source.folder)!r} can't be loaded "
            f"({reason_of(error)}); expected a text encoder that Transformers knows, with "
            "config.json, *.safetensors and tokenizer.json"
        ) from error


def _loaded(source: EncoderSource, config: TrainingConfig) -> StartingEncoder:
    tokenizer = load_tokenizer(source.folder)
    # The packaged one is used as DEPL uses BERT, which all published figures are of.
    is_depl = config.encoder == PACKAGED and config.is_tuned
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
    return StartingEncoder(tokenizer, encoder, prefixes)


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
    documents are the mean of their tokens where none stands before a text, as [CLS] does in BERT.

    Raises:
        ConfigError: The mean over words is asked for where it can't be told which they are, or
            documents and labels differ without training.
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
    """Refuse to compare vectors that nobody has made comparable."""
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
    """Let both poolers start as the encoder's dense layer; they are trained from there."""
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
