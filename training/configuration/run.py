"""The configuration of a training run: frozen, read from YAML, refused when a key is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from longtail.models.bundle.trained_on import MAX_PROBES
from longtail.models.errors import ConfigError
from longtail.models.files.typed_json import problem_in_words
from longtail.models.kinds.registry import keeping_documents, scorer_names, without_encoder
from longtail.models.names import (
    CLASSIFIER,
    ENSEMBLE,
    HYBRID,
    LINEAR,
    WORD_NEIGHBOURS,
    WORD_VECTORS,
    Pooling,
)
from longtail.models.scorers.word_forms import languages_of
from longtail.training.configuration.negatives import Section
from longtail.training.configuration.sections import (
    ClassifierConfig,
    DescriptionConfig,
    LinearConfig,
    RetrievalConfig,
    SparseConfig,
)

_TUNED_SCORERS = scorer_names()
"""Default scorers with a fine-tuned encoder: all others but scorers of other packages."""
_SCORERS = tuple(x for x in _TUNED_SCORERS if x not in (CLASSIFIER, HYBRID, LINEAR))
"""Those by default; the others score well by the vectors of a fine-tuned encoder alone."""

AUTO, NO_ENCODER = "auto", "none"
_DENSE_KEYS = (
    ("encoder", ""),
    ("document_max_tokens", ""),
    ("document_pooling", ""),
    ("document_prefix", ""),
    ("label_prefix", ""),
    ("frozen_layers", ""),
    ("precision", ""),
    ("gradient_checkpointing", ""),
    ("descriptions", "max_tokens"),
    ("classifier", ""),
    ("retrieval", ""),
    ("linear", ""),
)
"""What concerns the dense half alone: a section and a key of it, or all of the section."""
_LEFT_TO_ENCODER = (
    ("document_pooling", ""),
    ("document_prefix", ""),
    ("label_prefix", ""),
    ("retrieval", "label_pooling"),
)
"""What the encoder decides where it is None; then it is no setting that was used."""
BESIDE = (
    ("dense_neighbours", "retrieval"),
    ("classifier", "retrieval"),
    ("linear", "retrieval"),
    ("fast", "retrieval"),
    ("hybrid", "classifier"),
    (WORD_NEIGHBOURS, WORD_VECTORS),
)
"""Scorers that are made only beside another one."""


_LEAST_DOCUMENTS = 3
"""Different documents of a word, where they are confidential."""
_CONFIDENTIAL_DEFAULTS = (
    ("sparse", "min_document_count", 10),
    ("descriptions", "num_keywords", 0),
)
"""Where documents are confidential: section, key and value."""
MAX_PREFIX = 1000
"""Characters of a prefix."""


class TrainingConfig(Section):
    """Everything that decides what a run learns."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Two runs with one seed give the same bundle on one machine."""
    scorers: tuple[str, ...] = _SCORERS
    """What the bundle can score with, in any order: "sparse" always, "dense_neighbours",
    "classifier" and "linear" only beside "retrieval", whose encoder they read texts by, "hybrid"
    only beside "classifier". "ensemble" blends all others; "fast", only beside "retrieval", those
    that need no encoder. Without "retrieval" no encoder is needed. By default all that the blend of
    them ranks dev better with; "classifier", "hybrid" and "linear" only where the encoder is
    fine-tuned (`retrieval.epochs`). A scorer that is named here is kept in any case. With
    "neighbours" the bundle keeps the words of every training document, with "dense_neighbours" and
    "word_neighbours" their vectors; leave these out where documents are confidential. Other
    packages may register more (`longtail.models.kinds`)."""
    default_scorer: str | None = None
    """The scorer of requests that name none. Null: the blend without an encoder, or another one
    that ranks dev better beyond chance."""
    scorer_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of scorers, by name: `word_vectors: {dim: 256, epochs: 4}`, and of those of other
    packages."""
    encoder: str = AUTO
    """"packaged" (English), "multilingual" (intfloat/multilingual-e5-small of the model hub, with
    its prefixes), a folder, or an id on the hub. "auto": the packaged one; where it is not
    fine-tuned and no scorers are named, only if a sample says that it ranks dev better beyond
    chance. "none": scorers that need none are the default ones."""
    document_max_tokens: int = Field(default=128, ge=8, le=8192)
    """Tokens that the encoder reads of a document, special tokens included; a longer one is cut,
    and answers about it say so."""
    document_pooling: Pooling | None = None
    """What stands for a document: the last layer at its first token, "cls" (DEPL Eq. 1), the "mean"
    over its tokens, or its "last" token. Null: as the encoder was trained, where its files say so
    (sentence-transformers; not for "packaged"); else "last" in decoders, "mean" where no special
    token is before a text, as in T5, and "cls" in all others."""
    document_prefix: str | None = Field(default=None, max_length=MAX_PREFIX)
    """Put before each document, in training and in service, such as "query: " for the encoders
    named E5. Null: the prompt of queries that the encoder's files name (sentence-transformers), or
    none."""
    label_prefix: str | None = Field(default=None, max_length=MAX_PREFIX)
    """Put before each label's text, such as "passage: " for E5. Null: the prompt of documents that
    the encoder's files name, or none."""
    frozen_layers: int = Field(default=0, ge=0)
    """Lowest transformer layers (and the embeddings) that stay as they are: cheaper steps."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products in training; auto: bfloat16 where the hardware has it."""
    gradient_checkpointing: bool = False
    """Compute each layer a second time instead of keeping what its gradient needs: less memory,
    more time."""
    warmup_texts: int = Field(default=16, ge=0, le=MAX_PROBES)
    """Training texts that the bundle brings along, so that a service can try it on them; 0: no
    text of the corpus is in the bundle."""
    confidential: StrictBool = False
    """Whether the documents are confidential where bundles are not. Then "neighbours" and
    "dense_neighbours" are no scorers by default, `warmup_texts` and `descriptions.num_keywords` are
    0 and `sparse.min_document_count` is 10, and counts different documents: equal texts once, and
    documents of one `--group-column` (or id) once. Other values are refused, but for a count of 3
    or more. No command and no route shows keywords of labels."""
    excluded_words: Path | None = None
    """A text file in UTF-8 with words or names, as of persons, that never become features or
    keywords, whatever their case and accents; each word of a line counts for itself."""
    held_out_dev: float = Field(default=0.1, ge=0, le=0.5)
    """Where the corpus has no dev split: share of the training documents that is held out to choose
    and calibrate on, at most 5,000 of them, equal texts together; 0: none. What needs no encoder is
    then trained again on all documents."""
    remove_markup: bool | None = None
    """Read texts without HTML, in training and in service: tags are left out, and references such
    as "&szlig;" become characters. Null: where at least 1 % of the training documents have some.
    Explanations point into the text as it was sent."""
    languages: Annotated[tuple[str, ...], AfterValidator(languages_of)] | None = None
    """ISO 639 codes of the texts' languages, such as [de, en]: words of other languages than
    English are stemmed (Snowball) for "sparse" and "names", which reads compounds as their parts
    besides. Null: the languages that at least 10 % of the training documents are in. [en]: only
    "names" compares words without their plural's ending."""
    sparse: SparseConfig = SparseConfig()
    descriptions: DescriptionConfig = DescriptionConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    linear: LinearConfig = LinearConfig()

    @model_validator(mode="wrap")
    @classmethod
    def _with_defaults_of_others(
        cls, content: Any, validate: ModelWrapValidatorHandler[TrainingConfig]
    ) -> TrainingConfig:
        if not isinstance(content, dict):
            return validate(content)
        is_confidential = content.get("confidential") is True
        is_tuned = any(map(_has_epochs, _stages_of(content)))
        scorers = _default_scorers(is_confidential, is_tuned, content.get("encoder"))
        filled: dict[str, Any] = {"scorers": scorers} | content
        if is_confidential:
            filled = {"warmup_texts": 0} | filled
        for section, name, default in _CONFIDENTIAL_DEFAULTS if is_confidential else ():
            given = filled.get(section, {})
            if isinstance(given, BaseModel):
                given = given.model_dump(exclude_unset=True)
            if isinstance(given, dict):  # else it is refused when the section is read
                filled[section] = {name: default} | given
        config = validate(filled)
        if "scorers" not in content:
            config.model_fields_set.discard("scorers")  # nobody named them
        return config

    @field_validator("scorers")
    @classmethod
    def _scorers_that_go_together(cls, scorers: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in scorers if name not in scorer_names()]:
            known = ", ".join(scorer_names())
            raise ValueError(f"got {', '.join(map(repr, unknown))}, expected some of {known}")
        if len(set(scorers)) < len(scorers):
            raise ValueError("a scorer is named twice; name each once")
        if "sparse" not in scorers:
            raise ValueError("'sparse' is missing; descriptions and hard negatives come from it")
        for name, other in BESIDE:
            if name in scorers and other not in scorers:
                raise ValueError(f"{name!r} without {other!r}; add it, or leave both out")
        return tuple(name for name in scorer_names() if name in scorers)

    @model_validator(mode="after")
    def _nothing_against_confidential(self) -> TrainingConfig:
        keeping = [name for name in self.scorers if name in keeping_documents()]
        found = {
            f"scorers has {', '.join(map(repr, keeping))}, which keeps every document's words; "
            "leave it out": bool(keeping),
            f"warmup_texts is {self.warmup_texts}, expected 0": self.warmup_texts > 0,
            f"descriptions.num_keywords is {self.descriptions.num_keywords}, expected 0":
                self.descriptions.num_keywords > 0,
            f"sparse.min_document_count is {self.sparse.min_document_count}, expected "
            f"{_LEAST_DOCUMENTS} or more": self.sparse.min_document_count < _LEAST_DOCUMENTS,
        }  # fmt: skip
        if self.confidential and (problems := [what for what, is_so in found.items() if is_so]):
            raise ValueError(f"confidential: {'; '.join(problems)}, or set confidential to false")
        return self

    @model_validator(mode="after")
    def _room_for_a_document(self) -> TrainingConfig:
        for name in ("classifier", "retrieval"):
            tokens = getattr(self, name).batch_tokens
            if self.is_dense and tokens is not None and tokens < self.document_max_tokens:
                raise ValueError(
                    f"{name}.batch_tokens is {tokens}, but document_max_tokens is "
                    f"{self.document_max_tokens}; expected room for one document "
                    "at least"
                )
        return self

    @model_validator(mode="after")
    def _scorers_that_are_trained(self) -> TrainingConfig:
        if self.default_scorer not in (None, *self.scorers):
            raise ValueError(
                f"default_scorer is {self.default_scorer!r}; expected one of "
                f"{', '.join(self.scorers)}, or null"
            )
        if self.encoder == NO_ENCODER and self.is_dense:
            raise ValueError("encoder is 'none', but scorers has 'retrieval'; leave out either")
        if CLASSIFIER in self.scorers and not self.is_tuned:
            raise ValueError(
                "scorers has 'classifier', which is fine-tuned with the encoder, but "
                "classifier.epochs and retrieval.epochs are 0; raise one, or leave it out"
            )
        return self

    @property
    def is_dense(self) -> bool:
        """Whether there is an encoder."""
        return "retrieval" in self.scorers

    @property
    def is_tuned(self) -> bool:
        """Whether the encoder is fine-tuned; else its vectors are taken as they are."""
        return self.is_dense and any(map(_has_epochs, (self.classifier, self.retrieval)))

    @property
    def has_default_scorers(self) -> bool:
        """Whether the scorers are the default ones."""
        return "scorers" not in self.model_fields_set

    @property
    def is_encoder_by_default(self) -> bool:
        """Whether nobody chose the scorers, an encoder or what it is to do."""
        is_auto = self.encoder == AUTO and not self.is_tuned
        return self.is_dense and self.has_default_scorers and is_auto

    @property
    def without_encoder(self) -> TrainingConfig:
        """The same with the default scorers that need no encoder."""
        given = self.model_dump(exclude_unset=True, exclude={"scorers"})
        for section, name in _DENSE_KEYS:
            if not name:
                given.pop(section, None)
            elif section in given:
                given[section].pop(name, None)
        return TrainingConfig.model_validate(given | {"encoder": NO_ENCODER})

    @property
    def settings_used(self) -> dict[str, Any]:
        """All that decides what a run learns, as JSON has it; None of what the encoder decides.

        The list of excluded words is left out: its path says nothing of its content.
        """
        content = self.model_dump(mode="json", exclude={"excluded_words"})
        if not self.confidential:
            del content["confidential"]
        if not self.scorer_settings:
            del content["scorer_settings"]
        for section, name in _LEFT_TO_ENCODER:
            owner, key = (content[section], name) if name else (content, section)
            if owner[key] is None:
                del owner[key]
        for section, name in self._unused:
            if name:
                del content[section][name]
            else:
                content.pop(section, None)
        return content

    @property
    def keys_ignored(self) -> list[str]:
        """The keys that were given but decide nothing; `encoder: none` decides the scorers."""
        is_none = self.encoder == NO_ENCODER
        return [
            f"{section}.{name}" if name else section
            for section, name in self._unused
            if section in self.model_fields_set
            and not (section == "encoder" and is_none)
            and (not name or name in getattr(self, section).model_fields_set)
        ]

    @property
    def _unused(self) -> tuple[tuple[str, str], ...]:
        if not self.is_dense:
            return _DENSE_KEYS
        return () if LINEAR in self.scorers else ((LINEAR, ""),)


def _default_scorers(is_confidential: bool, is_tuned: bool, encoder: Any) -> tuple[str, ...]:
    names = _TUNED_SCORERS if is_tuned else _SCORERS
    if encoder == NO_ENCODER:
        names = (*without_encoder(), ENSEMBLE)
    elif is_confidential:
        names = (*names, LINEAR)  # which needs no documents
    kept = keeping_documents() if is_confidential else ()
    return tuple(x for x in scorer_names() if x in names and x not in kept)


def _stages_of(content: dict[str, Any]) -> list[Any]:
    return [content.get(name) for name in ("classifier", "retrieval")]


def _has_epochs(stage: Any) -> bool:
    found = stage.get("epochs") if isinstance(stage, dict) else getattr(stage, "epochs", None)
    return isinstance(found, int) and found > 0


def file_of_config(path: Path) -> Path:
    """Return the file that is meant: itself, or the one of `training/configs` with this name."""
    packaged = Path(__file__).parents[1] / "configs" / f"{path}.yaml"
    return packaged if not path.exists() and packaged.is_file() else path


def read_config(path: Path | None, overrides: dict[str, Any] | None = None) -> TrainingConfig:
    """Read a run configuration.

    Args:
        path: A YAML file, or the name of one that the package has, such as "full"; None for the
            defaults.
        overrides: Top-level keys that replace those of the file.
    """
    where = "configuration" if path is None else f"configuration {path}"
    try:
        text = "{}" if path is None else file_of_config(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: can't be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: got {content!r:.80}, expected 'key: value' lines")
    try:
        return TrainingConfig.model_validate(content | (overrides or {}))
    except ValidationError as error:
        raise ConfigError(f"{where}: {problems_in_words(error)}") from error


def problems_in_words(error: ValidationError) -> str:
    """Return all errors of settings: which setting, the value got and the value expected."""
    problems: dict[str, list[str]] = {}
    for item in error.errors():
        place = [x for x in map(str, item["loc"]) if not x.startswith(_BRANCHES_OF_UNIONS)]
        problems.setdefault(".".join(place), []).append(problem_in_words(item, repr))
    return "; ".join(f"{place}: {_either(several)}" for place, several in problems.items())


_BRANCHES_OF_UNIONS = ("constrained-", "literal[")
"""How pydantic begins what it adds to a place where a value may be of several types."""


def _either(problems: Sequence[str]) -> str:
    """Return one sentence of what a value is that fits none of several types."""
    return " or ".join([problems[0], *(x.partition("expected ")[2] for x in problems[1:])])
