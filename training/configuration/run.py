"""The configuration of a training run: frozen, read from YAML, refused when a key is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import (
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from models.bundle.warmup_texts import MAX_PROBES
from models.errors import ConfigError
from models.names import TEXT, Input
from training.configuration.linear import LinearConfig
from training.configuration.sections import (
    ClassifierConfig,
    DescriptionConfig,
    EnsembleConfig,
    RetrievalConfig,
    SparseConfig,
    WindowsConfig,
    _Section,
)

Scorer = Literal["retrieval", "classifier", "hybrid", "linear", "sparse", "ensemble"]

_DENSE_KEYS = (
    ("encoder", ""),
    ("document_max_tokens", ""),
    ("windows", ""),
    ("frozen_layers", ""),
    ("precision", ""),
    ("gradient_checkpointing", ""),
    ("compile", ""),
    ("descriptions", "max_tokens"),
    ("classifier", ""),
    ("retrieval", ""),
    ("linear", ""),
    ("ensemble", ""),
)
"""What concerns the dense half alone: a section and a key of it, or all of the section."""
_BESIDE = {
    "classifier": "retrieval",
    "linear": "retrieval",
    "ensemble": "retrieval",
    "hybrid": "classifier",
}
"""Scorers that are made only beside another one."""
_TEXT_KEYS = (
    ("probes", ""),
    ("sparse", "min_document_count"),
    ("sparse", "max_document_share"),
    ("sparse", "analyzer"),
    ("sparse", "lemma_language"),
    ("sparse", "max_ngram"),
)
"""What concerns corpora of texts alone."""


_STAGE_KEYS = (
    ("batch_tokens", None),
    ("accumulate", 1),
    ("schedule", "linear"),
    ("layer_decay", 1.0),
    ("early_stopping", None),
)
_LATER_KEYS: tuple[tuple[str, str, object], ...] = (
    ("windows", "", None),
    ("gradient_checkpointing", "", False),
    ("compile", "", False),
    ("sparse", "analyzer", "automatic"),
    *((stage, *key) for stage in ("classifier", "retrieval") for key in _STAGE_KEYS),
    ("retrieval", "joint", "separate"),
    ("retrieval", "refresh", None),
    ("retrieval", "keyword_dropout", 0.0),
    ("retrieval", "label_pooling", "mean"),
)
"""Keys that earlier releases lack, with the value that says what those did: it is left out of the
settings, so that folders and digests of such runs stay what they are."""


class TrainingConfig(_Section):
    """Everything that decides what a run learns."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Two runs with one seed give the same bundle on one machine."""
    scorers: tuple[Scorer, ...] = get_args(Scorer)
    """What the bundle can score with, in any order: "sparse" always, "classifier" and "linear" only
    beside "retrieval", whose document vectors they read, "hybrid" only beside "classifier",
    "ensemble" only beside "retrieval". With "sparse" alone no encoder is needed."""
    encoder: str = "packaged"
    """"packaged", a folder, or an id on the model hub."""
    document_max_tokens: int = Field(default=128, ge=8, le=8192)
    """Tokens that the encoder reads of a document at once, special tokens included."""
    windows: WindowsConfig | None = None
    """How longer documents are read, in training and after; None: only their beginning is."""
    frozen_layers: int = Field(default=0, ge=0)
    """Lowest transformer layers (and the embeddings) that stay as they are: cheaper steps."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the matrix products in training; auto: bfloat16 where the processor or GPU has it.
    float16 is for GPUs without bfloat16; the loss is scaled for its narrow range."""
    gradient_checkpointing: bool = False
    """Compute each layer a second time instead of keeping what its gradient needs: less memory,
    more time."""
    compile: bool = False
    """Compile the encoder with torch.compile for the training, where there is a compiler."""
    probes: int = Field(default=16, ge=0, le=MAX_PROBES)
    """Training texts that the bundle brings along, so that a service can try it on them; 0: no
    text of the corpus is in the bundle."""
    sparse: SparseConfig = SparseConfig()
    descriptions: DescriptionConfig = DescriptionConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    linear: LinearConfig = LinearConfig()
    ensemble: EnsembleConfig = EnsembleConfig()

    @field_validator("scorers")
    @classmethod
    def _scorers_that_go_together(cls, scorers: tuple[Scorer, ...]) -> tuple[Scorer, ...]:
        if len(set(scorers)) < len(scorers):
            raise ValueError("a scorer is named twice; name each once")
        if "sparse" not in scorers:
            raise ValueError("'sparse' is missing; descriptions and hard negatives come from it")
        for name, other in _BESIDE.items():
            if name in scorers and other not in scorers:
                raise ValueError(f"{name!r} without {other!r}; add it, or leave both out")
        return tuple(name for name in get_args(Scorer) if name in scorers)

    @model_validator(mode="after")
    def _joint_with_a_classifier(self) -> TrainingConfig:
        if (
            self.retrieval.joint != "separate"
            and self.is_dense
            and "classifier" not in self.scorers
        ):
            raise ValueError(
                f"retrieval.joint {self.retrieval.joint!r} trains the classifier along, but "
                "scorers lacks 'classifier'; add it, or take joint 'separate'"
            )
        return self

    @model_validator(mode="after")
    def _room_for_a_document(self) -> TrainingConfig:
        for name in ("classifier", "retrieval"):
            tokens = getattr(self, name).batch_tokens
            wanted = self.document_max_tokens * (1 if self.windows is None else self.windows.most)
            if self.is_dense and tokens is not None and tokens < wanted:
                raise ValueError(
                    f"{name}.batch_tokens is {tokens}, but document_max_tokens is "
                    f"{self.document_max_tokens}{self._in_windows}; wanted room for one document "
                    "at least"
                )
        return self

    @model_validator(mode="after")
    def _windows_that_go_on(self) -> TrainingConfig:
        windows, tokens = self.windows, self.document_max_tokens
        if self.is_dense and windows is not None and windows.overlap > tokens // 2:
            raise ValueError(
                f"windows.overlap is {windows.overlap}, but document_max_tokens is {tokens}; "
                "wanted at most half of it"
            )
        return self

    @property
    def _in_windows(self) -> str:
        return "" if self.windows is None else f", in {self.windows.most} windows"

    @property
    def is_dense(self) -> bool:
        """Whether an encoder is trained."""
        return "retrieval" in self.scorers

    def settings_used(self, data: Input) -> dict[str, Any]:
        """Return all that decides what a run on such documents learns, as JSON has it."""
        content = self.model_dump(mode="json")
        for section, name in self._unused(data):
            if name:
                del content[section][name]
            else:
                del content[section]
        for section, name, default in _LATER_KEYS:
            owner, key = (content.get(section, {}), name) if name else (content, section)
            if owner.get(key, ...) == default:
                del owner[key]
        return content

    def keys_ignored(self, data: Input) -> list[str]:
        """Return the keys that were given but decide nothing in a run on such documents."""
        return [
            f"{section}.{name}" if name else section
            for section, name in self._unused(data)
            if section in self.model_fields_set
            and (not name or name in getattr(self, section).model_fields_set)
        ]

    def _unused(self, data: Input) -> tuple[tuple[str, str], ...]:
        unused: tuple[tuple[str, str], ...] = _DENSE_KEYS
        if self.is_dense:
            optional = ("linear", "ensemble")
            unused = tuple((name, "") for name in optional if name not in self.scorers)
        return unused if data == TEXT else (*unused, *_TEXT_KEYS)


def read_config(path: Path | None, overrides: dict[str, Any] | None = None) -> TrainingConfig:
    """Read a run configuration.

    Args:
        path: A YAML file; None for the defaults.
        overrides: Top-level keys that replace those of the file.

    Raises:
        ConfigError: The file can't be read, a key is unknown, or a value is out of its range; the
            message names every one.
    """
    where = "the defaults" if path is None else str(path)
    try:
        content = {} if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"configuration {where}: can't be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"configuration {where}: wanted 'key: value' lines, came {content!r:.80}")
    try:
        return TrainingConfig.model_validate(content | (overrides or {}))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']} (came {item['input']!r:.60})"
            for item in error.errors()
        )
        raise ConfigError(f"configuration {where}: {problems}") from error
