"""Whether an encoder knows the texts of a corpus, before anything is trained.

An encoder whose tokenizer knows none of the words trains to the end without an error and gives
every document the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from transformers import TokenizersBackend

from longtail.models.encoders.pretrained import MULTILINGUAL
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.errors import ConfigError
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.languages import LanguageCount, function_words, name_of

logger = logging.getLogger(__name__)

MAX_UNKNOWN = 0.95
"""Share of unknown tokens from which on an encoder is refused."""
MANY_UNKNOWN = 0.2
"""And from which on a warning says it."""
_LEAST_WHOLE = 0.8
"""Share of a language's function words that are one token each in a tokenizer that knows it."""
_LEAST_LETTERS = 3
"""Letters of these words; shorter ones are tokens by chance."""
_LEAST_TOKENS = 5000
"""Tokens of a tokenizer of words; one of fewer takes all words apart, as one of characters does."""
_MOST_FOREIGN = 0.5
"""Share of the texts in languages that the tokenizer does not know, from which on it is refused."""


def check_encoder(
    name: str, tokenizer: TokenizersBackend, config: TrainingConfig, sample: Sequence[str]
) -> None:
    """Refuse an encoder that does not know the texts, and warn of one that knows few.

    Args:
        name: What the configuration calls it.
        tokenizer: The encoder's.
        config: The run's configuration.
        sample: Training texts from all over the corpus, none of them blank.
    """
    if sample:
        tokens = tokenize_texts(tokenizer, sample, config.document_max_tokens)
        _check_unknown(name, tokenizer, tokens)
        _check_languages(name, tokenizer, config, sample)


def _check_unknown(name: str, tokenizer: TokenizersBackend, tokens: TokenizedTexts) -> None:
    num_tokens = len(tokens.ids) - tokenizer.num_special_tokens_to_add() * len(tokens)
    if num_tokens <= 0:
        raise ConfigError(
            f"encoder {name!r}: its tokenizer finds no token in {len(tokens)} training texts; use "
            "an encoder for the language of the texts"
        )
    share = float((tokens.ids == tokenizer.unk_token_id).sum()) / num_tokens
    message = (
        f"encoder {name!r}: {share:.0%} of the tokens of {len(tokens)} training texts are unknown "
        f"to its tokenizer ({tokenizer.unk_token!r})"
    )
    advice = "use an encoder for the language of the texts, and with its own tokenizer"
    if share >= MAX_UNKNOWN:
        raise ConfigError(f"{message}, expected less than {MAX_UNKNOWN:.0%}; {advice}")
    if share >= MANY_UNKNOWN:
        logger.warning("%s; better: %s", message, advice)


def _check_languages(
    name: str, tokenizer: TokenizersBackend, config: TrainingConfig, sample: Sequence[str]
) -> None:
    """Refuse a tokenizer that splits common words of most texts, and warn if of some.

    A tokenizer that was made for a language has its most common words whole.
    """
    if len(tokenizer) < _LEAST_TOKENS:
        return
    read = config.languages
    shares = {x: y for x, y in LanguageCount.of(sample).shares.items() if read is None or x in read}
    foreign = {x: y for x, y in shares.items() if _whole_share(tokenizer, x) < _LEAST_WHOLE}
    if not foreign:
        return
    names = " and ".join(map(name_of, foreign))
    message = (
        f"encoder {name!r}: {sum(foreign.values()):.0%} of the training texts are in {names}, but "
        f"its tokenizer takes even the most common words of {names} apart"
    )
    advice = f"'encoder: {MULTILINGUAL}', or an encoder for {names}"
    if not config.is_tuned:
        message += ", so blends count it as far as it helps on dev"
    if sum(foreign.values()) >= _MOST_FOREIGN and config.is_tuned:
        raise ConfigError(f"{message}; use {advice} (or, to train it all the same, languages: [])")
    logger.warning("%s; better: %s", message, advice)


def _whole_share(tokenizer: TokenizersBackend, language: str) -> float:
    """Return the share of a language's function words that are one token each, inside a text."""
    words = [f" {word}" for word in function_words(language) if len(word) >= _LEAST_LETTERS]
    encoded = tokenizer.backend_tokenizer.encode_batch(words, add_special_tokens=False)
    unknown = tokenizer.unk_token_id
    num_whole: int = sum(len(x.ids) == 1 and x.ids[0] != unknown for x in encoded)
    return num_whole / len(words)
