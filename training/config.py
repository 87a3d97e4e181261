"""The configuration of a training run: frozen, read from YAML, refused when a key is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from models.errors import ConfigError
from models.manifest import TEXT, Input, LabelPooling
from models.probes import MAX_PROBES
from models.windows import WindowPool, Windows
from training.learning_config import (
    DecoupledLossConfig,
    DeplLossConfig,
    LearningConfig,
    LossConfig,
    NegativesConfig,
    SoftTopKLossConfig,
    refuse_impossible,
)
from training.linear_config import LinearConfig

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
StopWordLanguage = Literal["en", "de"]
Scorer = Literal["retrieval", "classifier", "hybrid", "linear", "sparse", "ensemble"]
Joint = Literal["separate", "hybrid", "both"]

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


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SparseConfig(_Section):
    """Tf-idf and the linear SVM of each label (DEPL section 3.2)."""

    analyzer: Literal["automatic", "word", "char"] = "automatic"
    """What texts are taken apart into. word: words of two letters or more. char: character n-grams
    of one to three, for scripts without spaces between words, as Chinese, Japanese and Thai.
    automatic: char where most letters of the training documents are of such scripts, or where no
    document has a word."""
    min_document_count: Positive = 2
    """A token must occur in at least so many training documents; the default is 1 where no token
    does."""
    max_document_share: Rate = 0.7
    """A token may occur in at most this share of them; the default is all where every token is
    more frequent."""
    lemma_language: str = Field(default="", pattern=r"^([a-z]{2,3})?$")
    """ISO 639 code of spaCy's lookup lemmas; empty: surface forms."""
    max_ngram: int = Field(default=1, ge=1, le=3)
    """Words of the longest phrase that is a feature, beside single words. 2 ranks better, and takes
    about three times the time and memory."""
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    """The paper prints the hinge; its square is as good or better in fewer iterations."""
    cost: float = Field(default=1.0, gt=0)
    """C of the SVM: how much an error costs against the weights' norm."""
    prune_below: float = Field(default=0.03, ge=0)
    """Weights of smaller magnitude are dropped."""
    weight_precision: Literal["float32", "float16"] = "float32"
    """What the weights are rounded to, and stored in; float16 halves their part of the bundle."""
    exact_documents: int = Field(default=10_000, ge=0)
    """With at most so many training documents, each label is trained on all of them."""
    rounds: Positive = 2
    """With more: how often each label's hard negatives are looked for and it is trained."""
    hard_negatives: int = Field(default=500, ge=0)
    """Documents that a label's weights wrongly rank highest, added a round."""
    hard_negatives_per_positive: int = Field(default=5, ge=0)
    """And so many more for each document that carries it."""
    sampled_negatives: Positive = 1000
    """Documents drawn uniformly to stand for all others."""
    negatives_a_document: Positive = 128
    """With very many labels, each takes fewer hard and sampled negatives: with N documents and L
    labels, `negatives_a_document` x N x log2(L) / L, so that the cost of all grows as log2(L)."""

    @model_validator(mode="after")
    def _words_for_what_reads_words(self) -> SparseConfig:
        if self.analyzer == "char" and (self.max_ngram > 1 or self.lemma_language):
            name = "max_ngram" if self.max_ngram > 1 else "lemma_language"
            raise ValueError(
                f"analyzer 'char' takes n-grams of characters, but {name} is for words; drop {name}"
            )
        return self


class DescriptionConfig(_Section):
    """Pseudo label descriptions (DEPL section 3.2)."""

    num_keywords: int = Field(default=20, ge=0)
    """Highest-weighted tokens appended to the label's name; 0 is the paper's DE-ret."""
    drop_name_tokens: bool = False
    """Leave out keywords that are words of the label's name."""
    drop_numbers: bool = False
    """Leave out keywords without a letter."""
    drop_stop_words: tuple[StopWordLanguage, ...] = ()
    """Leave out the stop-words of these languages; see `training.stop_words`."""
    alternative_names: int = Field(default=0, ge=0)
    """Other names of a label that stand before its keywords, at most; the label file has them."""
    parents: bool = False
    """Whether the names of broader labels stand there too."""
    max_tokens: int = Field(default=32, ge=4, le=512)
    """Tokens that the label encoder reads, special ones included; the paper compares 8, 16, 32."""


class EarlyStoppingConfig(_Section):
    """When a stage ends before its last epoch: when a metric on the dev split gets no better.

    The stage keeps the weights that were best.
    """

    metric: str = Field(default="P@5", pattern=r"^(P|nDCG|PSP|PSnDCG|R|RP|macro-F1)@[1-9][0-9]?$")
    """Of the classifier in its stage, of the dual encoder in its own; macro-F1 is over the labels
    with 1-9 training documents."""
    every: float = Field(default=0.5, gt=0)
    """Epochs between two measurements; the last step is measured too."""
    patience: Positive = 2
    """Measurements in a row without a better one that end the stage."""
    documents: Positive = 2000
    """Documents of the dev split that are ranked, at most; which ones, the seed decides."""

    @property
    def places(self) -> int:
        """Number of places that the metric looks at."""
        return int(self.metric.rpartition("@")[2])

    def fitted_to(self, num_labels: int) -> EarlyStoppingConfig:
        """Return the settings for a corpus: the default metric looks at no more places than labels.

        Other metrics are left as they are, and refused where they can't be measured.
        """
        if self.metric != EarlyStoppingConfig().metric or self.places <= num_labels:
            return self
        return self.model_copy(update={"metric": f"P@{num_labels}"})


class StageConfig(_Section):
    """One stage of neural training: AdamW, linear warm-up, then a schedule."""

    epochs: Positive
    """Passes over the training documents."""
    batch_size: Positive
    """Documents a step; with `batch_tokens`, at most."""
    batch_tokens: Positive | None = None
    """Tokens of the documents of a step, padding included, at most; each step then has documents
    of similar length, and steps differ in their number. None: documents come as they are drawn."""
    accumulate: Positive = 1
    """Parts in which a step encodes its texts, one after the other: the same gradient, in the
    memory of one part, and a third more time (see `training.encoding`)."""
    encoder_learning_rate: Rate
    """Peak rate of the transformer."""
    pooler_learning_rate: Rate
    """Peak rate of both poolers."""
    classifier_learning_rate: Rate
    """Peak rate of the classifier's label weights."""
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the rates rise."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the rates fall after that, to zero at the last step; constant: not at all."""
    layer_decay: Rate = 1.0
    """Each layer of the transformer has so many times the rate of the one above it, and the
    embeddings of the lowest layer's; 1: all have the same."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of AdamW."""
    max_gradient_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    early_stopping: EarlyStoppingConfig | None = None
    """None: all epochs are trained, and the last weights kept."""


class ClassifierConfig(StageConfig):
    """The dense classifier that the dual encoder starts from (DEPL section 3.5, Eq. 3)."""

    epochs: int = Field(default=2, ge=0)
    """Passes over the training documents; 0: the dual encoder starts from the encoder as it is."""
    batch_size: Positive = 32
    encoder_learning_rate: Rate = 1e-4
    pooler_learning_rate: Rate = 1e-3
    classifier_learning_rate: Rate = 5e-3


class RefreshConfig(_Section):
    """Hard negatives from the dual encoder itself (see `training.mining`)."""

    every_steps: Positive
    """All labels, and the documents of as many steps, are encoded every so many steps."""
    share: Rate = 1.0
    """Of the hard negatives that are mined; the rest stay the SVM's, and all are before the first
    refresh."""


class RetrievalConfig(StageConfig):
    """The dual encoder (DEPL section 3.3)."""

    epochs: Positive = 2
    batch_size: Positive = 32
    encoder_learning_rate: Rate = 1e-4
    pooler_learning_rate: Rate = 1e-3
    classifier_learning_rate: Rate = 1e-3
    hard_negatives: int = Field(default=10, ge=0)
    """Highest-ranked wrong labels of the SVM, a document."""
    refresh: RefreshConfig | None = None
    """How often hard negatives are mined by the dual encoder; None: never."""
    label_subset_size: Positive = 384
    """Labels a step: positives, hard negatives, and uniform draws up to this number; the paper has
    300-500. With `negatives`, the most that a step encodes: pairs beyond are left out at random."""
    loss: LossConfig = DeplLossConfig()
    """What scores cost: those of the label subset (depl, decoupled_softmax, soft_top_k), or those
    of pairs and their negatives (softmax, decoupled, ordered)."""
    negatives: NegativesConfig | None = None
    """Of a loss over pairs: q, w, m."""
    keyword_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of a step's labels that are read without their keywords, as those without training
    documents always are."""
    cosine_scale: float = Field(default=10.0, gt=0)
    """How sharply the first scores tell cosines apart."""
    label_pooling: LabelPooling = "mean"
    """What the label encoder makes of a text's tokens: the mean of the last layer over them, or
    that of [CLS] alone (DEPL, Table 7)."""
    joint: Joint = "separate"
    """How the classifier is trained along. separate: by its own loss over all labels, beside the
    dual encoder's. hybrid: the loss is that of (sigma(f_dual) + sigma(f_cls)) / 2 over the label
    subset (DEPL Eq. 4), and no other. both: all three losses."""

    @model_validator(mode="after")
    def _refuse_full_top(self) -> RetrievalConfig:
        if isinstance(self.loss, SoftTopKLossConfig) and self.loss.k >= self.label_subset_size:
            raise ValueError(
                f"loss 'soft_top_k': k is {self.loss.k}, with label_subset_size "
                f"{self.label_subset_size}; wanted fewer than are scored"
            )
        return self

    @model_validator(mode="after")
    def _refuse_impossible_pairs(self) -> RetrievalConfig:
        refuse_impossible(self.loss, self.negatives)
        if self.refresh is not None and not self.hard_negatives:
            raise ValueError("refresh mines hard negatives, but hard_negatives is 0")
        if self.negatives is None:
            return self
        if self.refresh is not None:
            raise ValueError(
                "refresh mines hard negatives for the batch's label subset; drop 'negatives', or "
                "drop 'refresh'"
            )
        if self.joint != "separate":
            raise ValueError(
                f"joint {self.joint!r} is a loss over the batch's label subset; drop 'negatives', "
                "or take joint 'separate'"
            )
        kind, bound = self.negatives.q.kind, self.label_subset_size
        if kind == "hard" and not self.hard_negatives:
            raise ValueError("q 'hard' draws from the hard negatives, but hard_negatives is 0")
        if self.negatives.most_pairs(bound) == 0:
            raise ValueError(
                f"m is {self.negatives.m}, but a step encodes {bound} labels, that of a pair among "
                "them; lower m, or raise label_subset_size"
            )
        if isinstance(self.loss, DecoupledLossConfig) and self.loss.part == "cosine_contrastive":
            raise ValueError("loss part 'cosine_contrastive' wants cosines; f_dual has none")
        return self

    @property
    def learning(self) -> LearningConfig:
        """The loss and the negatives."""
        return LearningConfig(negatives=self.negatives, loss=self.loss)

    def check(self, num_labels: int) -> None:
        """Refuse what the number of labels makes impossible.

        Raises:
            ConfigError: It does.
        """
        self.learning.check(num_labels, self.hard_negatives)
        is_all = self.negatives is not None and self.negatives.q.kind == "all"
        if is_all and num_labels > self.label_subset_size:
            raise ConfigError(
                f"retrieval: q 'all' encodes {num_labels} labels a step, but label_subset_size is "
                f"{self.label_subset_size}; raise it, or take another q"
            )


class WindowsConfig(_Section):
    """Overlapping windows in which long documents are read (see `models.windows`)."""

    overlap: int = Field(default=32, ge=0)
    """Tokens that a window has in common with the one before; at most half of a window."""
    pool: WindowPool = "mean"
    """What the vector of a document is of those of its windows, dimension by dimension."""
    most: int = Field(default=4, ge=2, le=64)
    """Windows a document; what lies behind the last is not read. A step takes up to so many times
    the time and memory."""

    @property
    def windows(self) -> Windows:
        """The same, as texts are read by it."""
        return Windows(self.overlap, self.pool, self.most)


class EnsembleConfig(_Section):
    """What the ensemble's weights are to be good at on the dev split: a weighted sum of metrics."""

    places: Positive = 5
    """k of the metrics."""
    precision: float = Field(default=1.0, ge=0)
    """Weight of P@k."""
    propensity_scored_precision: float = Field(default=1.0, ge=0)
    """Weight of PSP@k, in which rare labels count more."""
    tail_f1: float = Field(default=1.0, ge=0)
    """Weight of macro-F1@k over the labels with 1-9 training documents."""

    @model_validator(mode="after")
    def _some_weight(self) -> EnsembleConfig:
        if not (self.precision or self.propensity_scored_precision or self.tail_f1):
            raise ValueError("all three weights are 0; give one that is more")
        return self


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
