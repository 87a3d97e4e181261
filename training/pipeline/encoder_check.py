"""What is tried of an encoder at the start of a run, before anything is trained.

An encoder that reads no text, or whose tokenizer knows none of the corpus' words, trains to the
end without an error and gives every document the same answer. So a run first tries what it will do:
vectors of some training texts, the longest texts in the run's precision, gradients, and saving the
weights and loading them. That takes a second or two for a small encoder, changes neither the
encoder nor the random state, and takes no draw that the run would have had.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import TokenizersBackend

from longtail.models.encoders.check import failure_in, num_token_ids, reason_of, twin
from longtail.models.encoders.dual_encoder import DualEncoder, Role
from longtail.models.encoders.pretrained import MULTILINGUAL, EncoderSource, load_transformer
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.errors import ConfigError
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.languages import LanguageCount, function_words, name_of
from longtail.training.runtime.distributed import Machine

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
_NUM_VECTORS = 8
"""Different training texts whose vectors are compared."""
_COMPARED = 64
"""Most tokens of them that are read."""
_SAME = 1e-6
"""Distance of two vectors that are called the same, relative to their length."""
_MAX_MOVED = 0.01
"""Share of its length by which padding beside a text may move its vector without a warning."""
_SHORT = 32
"""Most tokens of a text whose gradient is tried."""
_TRIAL_TEXT = "a river and the law of the sea "


@dataclass(frozen=True, slots=True)
class EncoderTrial:
    """An encoder that is tried.

    Attributes:
        source: Where it lies.
        encoder: It is left as it is.
        tokenizer: Its tokenizer.
        machine: Where and how precisely it is to be trained.
        config: Of the run.
    """

    source: EncoderSource
    encoder: DualEncoder
    tokenizer: TokenizersBackend
    machine: Machine
    config: TrainingConfig

    @property
    def name(self) -> str:
        """What messages call the encoder."""
        return f"encoder {self.source.name!r} ({type(self.encoder.transformer).__name__})"


def usable_machine(trial: EncoderTrial) -> Machine:
    """Return the machine in a precision that the encoder can be trained and served in."""
    exact = replace(trial.machine, is_bfloat16=False)
    if failure := _training_failure(replace(trial, machine=exact)):
        raise ConfigError(f"{trial.name} can't be trained ({failure}); use another encoder")
    if not trial.machine.is_bfloat16:
        return trial.machine
    failure = _training_failure(trial)
    if failure is None:
        failure = failure_in(trial.encoder.transformer, torch.bfloat16)  # what a service uses
    if failure is None:
        return trial.machine
    message = f"{trial.name} can't be trained and served in bfloat16 ({failure})"
    if trial.config.precision != "auto":
        raise ConfigError(f"precision is 'bfloat16', but {message}; set precision to 'float32'")
    logger.warning("%s: it is trained in float32", message)
    return exact


def check_encoder(trial: EncoderTrial, sample: Sequence[str]) -> None:
    """Refuse an encoder that can't do what the run will ask of it.

    Args:
        trial: The encoder, on a machine whose precision it can compute in.
        sample: Training texts from all over the corpus, none of them blank.
    """
    most = trial.config.document_max_tokens
    tokens = tokenize_texts(trial.tokenizer, sample, most)
    beginnings = tokenize_texts(trial.tokenizer, sample, min(most, _COMPARED))
    with trial.machine.forked_random(trial.config.seed):
        if sample:
            _check_ids(trial, tokens)
            _check_unknown(trial, tokens)
            _check_languages(trial, sample)
            _check_vectors(trial, _different(beginnings), num_different=len(set(sample)))
        _check_lengths(trial)
        _check_saving(trial)


# ---- tokens ----


def _check_ids(trial: EncoderTrial, tokens: TokenizedTexts) -> None:
    num_ids = num_token_ids(trial.encoder.transformer)
    if int(tokens.ids.max(initial=0)) >= num_ids:
        raise ConfigError(
            f"{trial.name}: its tokenizer gives the token id {tokens.ids.max()}, but the encoder "
            f"has embeddings for {num_ids} tokens; put the encoder's own tokenizer beside it"
        )


def _check_unknown(trial: EncoderTrial, tokens: TokenizedTexts) -> None:
    """Refuse a tokenizer that knows almost nothing of the corpus, and warn if it knows little."""
    num_special = trial.tokenizer.num_special_tokens_to_add()
    num_tokens = len(tokens.ids) - num_special * len(tokens)
    if num_tokens <= 0:
        raise ConfigError(
            f"{trial.name}: its tokenizer finds no token in {len(tokens)} training texts; use an "
            "encoder for the language of the texts"
        )
    share = float((tokens.ids == trial.tokenizer.unk_token_id).sum()) / num_tokens
    message = (
        f"{trial.name}: {share:.0%} of the tokens of {len(tokens)} training texts are unknown to "
        f"its tokenizer ({trial.tokenizer.unk_token!r})"
    )
    advice = "use an encoder for the language of the texts, and with its own tokenizer"
    if share >= MAX_UNKNOWN:
        raise ConfigError(f"{message}, expected less than {MAX_UNKNOWN:.0%}; {advice}")
    if share >= MANY_UNKNOWN:
        logger.warning("%s; better: %s", message, advice)


def _check_languages(trial: EncoderTrial, sample: Sequence[str]) -> None:
    """Refuse a tokenizer that takes the words of most texts apart, and warn if those of some.

    A tokenizer that was made for a language has its most common words whole.
    """
    if len(trial.tokenizer) < _LEAST_TOKENS:
        return
    read = trial.config.languages
    shares = {x: y for x, y in LanguageCount.of(sample).shares.items() if read is None or x in read}
    foreign = {x: y for x, y in shares.items() if _whole_share(trial, x) < _LEAST_WHOLE}
    if not foreign:
        return
    names = " and ".join(map(name_of, foreign))
    message = (
        f"{trial.name}: {sum(foreign.values()):.0%} of the training texts are in {names}, but its "
        f"tokenizer takes even the most common words of {names} apart"
    )
    advice = f"'encoder: {MULTILINGUAL}', or an encoder for {names}"
    if not trial.config.is_tuned:
        message += ", so blends count it as far as it helps on dev"
    if sum(foreign.values()) >= _MOST_FOREIGN and trial.config.is_tuned:
        raise ConfigError(f"{message}; use {advice} (or, to train it all the same, languages: [])")
    logger.warning("%s; better: %s", message, advice)


def _whole_share(trial: EncoderTrial, language: str) -> float:
    """Return the share of a language's function words that are one token each, inside a text."""
    words = [f" {word}" for word in function_words(language) if len(word) >= _LEAST_LETTERS]
    encoded = trial.tokenizer.backend_tokenizer.encode_batch(words, add_special_tokens=False)
    unknown = trial.tokenizer.unk_token_id
    num_whole: int = sum(len(x.ids) == 1 and x.ids[0] != unknown for x in encoded)
    return num_whole / len(words)


# ---- vectors ----


def _different(tokens: TokenizedTexts) -> TokenizedTexts:
    rows = {tokens.take([row]).ids.tobytes(): row for row in range(len(tokens))}
    chosen = sorted(rows.values())
    return tokens.take(chosen[:: max(1, len(chosen) // _NUM_VECTORS)][:_NUM_VECTORS])


def _check_vectors(trial: EncoderTrial, tokens: TokenizedTexts, *, num_different: int) -> None:
    """Refuse an encoder that gives different texts one vector, and warn if padding changes one."""
    if len(tokens) < 2 <= num_different:
        raise ConfigError(
            f"{trial.name}: its tokenizer makes the same tokens of {num_different} different "
            "training texts; use an encoder for the language of the texts"
        )
    encoder = twin(trial.encoder).eval()
    together = _encode(trial, encoder, tokens)
    lengths = together.norm(dim=1)
    distances = torch.cdist(together, together, compute_mode="donot_use_mm_for_euclid_dist")
    is_same = distances <= _SAME * lengths[:, None]
    num_found = len(together) - int(is_same.tril(-1).any(dim=1).sum())
    if 1 < len(together) >= 2 * num_found:
        raise ConfigError(
            f"{trial.name}: {len(together)} different training texts have {num_found} different "
            "vectors; use a bidirectional encoder such as BERT, or 'packaged'"
        )
    moved = _padding_share(trial, encoder, tokens.take([int(tokens.lengths.argmin())]))
    if moved > _MAX_MOVED:
        logger.warning(
            "%s: the vector of a text changed by %.0f %% with the padding beside it, so "
            "answers depend on what else is asked at the same time",
            trial.name, 100 * moved,
        )  # fmt: skip


def _padding_share(trial: EncoderTrial, encoder: DualEncoder, text: TokenizedTexts) -> float:
    """Return how far padding moves the vector of a text, relative to its length."""
    most = min(2 * len(text.ids), trial.config.document_max_tokens)
    longer = tokenize_texts(trial.tokenizer, [_TRIAL_TEXT * (1 + most // 4)], most)
    alone = _encode(trial, encoder, text)[0]
    beside = _encode(trial, encoder, TokenizedTexts.joined([text, longer]))[0]
    return float((alone - beside).norm() / alone.norm())


@torch.no_grad()
def _encode(trial: EncoderTrial, encoder: DualEncoder, tokens: TokenizedTexts) -> Tensor:
    pad_id, device = int(trial.tokenizer.pad_token_id or 0), trial.machine.device
    batch = tokens.batch(np.arange(len(tokens)), pad_id, device)
    found: Tensor = encoder(batch, "document").float()
    return found


# ---- lengths, precision, gradients, files ----


def _check_lengths(trial: EncoderTrial) -> None:
    """Refuse a number of tokens that the encoder can't read in the run's precision."""
    for setting, most, role in _lengths(trial.config):
        try:
            with torch.no_grad(), trial.machine.autocast():
                vectors = _trial_vectors(trial, twin(trial.encoder).eval(), role, most)
        except Exception as error:  # a foreign model may raise anything
            raise ConfigError(
                f"{setting} is {most}, but {trial.name} can't read so many tokens "
                f"({reason_of(error)}); lower {setting}"
            ) from error
        if not vectors.isfinite().all():
            raise ConfigError(
                f"{trial.name}: vectors of {most} tokens are not finite numbers; lower {setting}, "
                "or set precision to 'float32'"
            )


def _lengths(config: TrainingConfig) -> tuple[tuple[str, int, Role], ...]:
    return (
        ("document_max_tokens", config.document_max_tokens, "document"),
        ("descriptions.max_tokens", config.descriptions.max_tokens, "label"),
    )


def _training_failure(trial: EncoderTrial) -> str | None:
    """Return why the gradient of a vector can't be computed on a machine; None: it can."""
    try:
        with trial.machine.forked_random(trial.config.seed):
            return _gradient_failure(trial)
    except Exception as error:  # noqa: BLE001  # a foreign model may raise anything
        return reason_of(error)


def _gradient_failure(trial: EncoderTrial) -> str | None:
    encoder = twin(trial.encoder).train()
    trained = [each for each in encoder.transformer.parameters() if each.requires_grad]
    total = torch.zeros((), device=trial.machine.device)
    for _, most, role in _lengths(trial.config):
        with trial.machine.autocast():
            vectors = _trial_vectors(trial, encoder, role, min(most, _SHORT)).float()
        # Unequal weights: the numbers of a normalised vector have a constant sum.
        weights = torch.arange(vectors.shape[1], device=vectors.device).cos()
        total = total + (vectors @ weights).sum()
    if not total.isfinite():
        return "its vectors are not finite numbers"
    depth = int(getattr(trial.encoder.transformer.config, "num_hidden_layers", 0))
    if not trained or 0 < depth <= trial.config.frozen_layers:  # what is left may have no part
        return None
    found = torch.autograd.grad(total, trained, allow_unused=True)
    sizes = torch.stack([each.float().norm() for each in found if each is not None] or [total * 0])
    if not sizes.isfinite().all():
        return "its gradients are not finite numbers"
    return None if sizes.any() else "its weights get no gradient"


def _trial_vectors(trial: EncoderTrial, encoder: DualEncoder, role: Role, most: int) -> Tensor:
    """Return the vectors of a text of a number of tokens, or a few less, and of a short one."""
    texts = [_TRIAL_TEXT * (1 + most // 4), _TRIAL_TEXT]  # more than 4 tokens each
    tokens = tokenize_texts(trial.tokenizer, texts, most)
    pad_id = int(trial.tokenizer.pad_token_id or 0)
    vectors: Tensor = encoder(tokens.batch(np.arange(2), pad_id, trial.machine.device), role)
    return vectors


def _check_saving(trial: EncoderTrial) -> None:
    saved = twin(trial.encoder.transformer)
    try:
        with tempfile.TemporaryDirectory(prefix="longtail-encoder-") as folder:
            saved.save_pretrained(folder)
            found = load_transformer(Path(folder)).state_dict()
    except Exception as error:  # a foreign model may raise anything
        raise ConfigError(
            f"{trial.name} can't be saved and loaded again ({reason_of(error)}); use another "
            "encoder"
        ) from error
    expected = {name: each.cpu() for name, each in saved.state_dict().items()}
    if changed := [name for name in expected if not _is_same(expected[name], found.get(name))]:
        raise ConfigError(
            f"{trial.name}: {len(changed)} of its {len(expected)} weights are not the same when "
            f"they are saved and loaded again ({changed[0]!r}); use another encoder"
        )


def _is_same(expected: Tensor, found: Tensor | None) -> bool:
    return found is not None and torch.equal(expected, found)
