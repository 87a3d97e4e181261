"""Sections of the configuration of a run, the linear scorers' among them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from longtail.models.errors import ConfigError
from longtail.models.names import MAX_NGRAM, MAX_TITLE_WEIGHT, CorrectionName, Pooling
from longtail.training.configuration.learning import (
    DeplLossConfig,
    LearningConfig,
    LossConfig,
    SoftmaxLossConfig,
)
from longtail.training.configuration.negatives import (
    FrequencyConfig,
    NegativesConfig,
    Positive,
    Section,
    TreeFitConfig,
    WithinBatchConfig,
)

Rate = Annotated[float, Field(gt=0, le=1)]


AUTO: Final = "auto"
DEFAULT_COST = 1.0


class SparseConfig(Section):
    """Tf-idf and the linear SVM of each label (DEPL section 3.2)."""

    analyzer: Literal["automatic", "word", "char"] = "automatic"
    """What texts are taken apart into. word: words of two letters or more. char: character n-grams
    of one to three, for scripts without spaces between words, as Chinese, Japanese and Thai.
    automatic: char where most letters of the training documents are of such scripts, or where no
    document has a word."""
    min_document_count: Positive = 2
    """A token must occur in at least this number of training documents; the default is 1 where no
    token does."""
    max_document_share: Rate = 0.7
    """A token may occur in at most this share of them; the default is all where every token is
    more frequent."""
    max_ngram: int = Field(default=1, ge=1, le=MAX_NGRAM)
    """Words of the longest phrase that is a feature, beside single words. 2 ranks long
    texts better, and takes more time and memory."""
    title_weight: float = Field(default=0.5, ge=0, le=MAX_TITLE_WEIGHT)
    """What the words of a title, a text's first line where it has others, count as features of
    their own beside the whole text, where half of the training documents have a title; 0: they are
    none. Characters (`analyzer`) have no titles."""
    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"
    """The paper prints the hinge; its square is as good or better in fewer iterations."""
    cost: Annotated[float, Field(gt=0)] | Literal["auto"] = AUTO
    """C of the SVM: how much an error costs against the weights' norm. auto: 0.5 where it ranks the
    dev split better than 1, beyond chance; else 1. A large one, as 100, is not solved to the end:
    training stops after 100 passes, and rankings hardly change after them."""
    rare_cost: float = Field(default=2.0, gt=0)
    """The same for labels with fewer than 10 training documents."""
    prune_below: float = Field(default=0.03, ge=0)
    """Weights of smaller magnitude are dropped."""
    exact_documents: int = Field(default=10_000, ge=0)
    """Up to this number of training documents, each label is trained on all of them."""
    rounds: Positive = 2
    """With more: how often each label's hard negatives are looked for and it is trained."""
    hard_negatives: int = Field(default=500, ge=0)
    """Documents that a label's weights wrongly rank highest, added a round."""
    hard_negatives_per_positive: int = Field(default=5, ge=0)
    """Further ones for each document that carries the label."""
    sampled_negatives: Positive = 1000
    """Documents drawn uniformly to stand for all others."""
    negatives_per_document: Positive = 128
    """With very many labels, each takes fewer hard and sampled negatives: with N documents and L
    labels, `negatives_per_document` x N x log2(L) / L, so that the cost of all grows as log2(L)."""

    @model_validator(mode="after")
    def _words_for_what_reads_words(self) -> SparseConfig:
        if self.analyzer == "char" and self.max_ngram > 1:
            raise ValueError(
                "analyzer 'char' takes n-grams of characters, but max_ngram is for words; "
                "drop max_ngram"
            )
        return self


class DescriptionConfig(Section):
    """Pseudo label descriptions (DEPL section 3.2)."""

    num_keywords: int = Field(default=20, ge=0)
    """Highest-weighted tokens appended to the label's name; 0 is the paper's DE-ret."""
    alternative_names: int = Field(default=0, ge=0)
    """Other names of a label that are before its keywords, at most; the label file has them."""
    parents: bool = False
    """Whether the names of broader labels are there too."""
    max_tokens: int = Field(default=32, ge=4, le=512)
    """Tokens that the label encoder reads, special ones included; the paper compares 8, 16, 32."""


class StageConfig(Section):
    """One stage of neural training: AdamW, whose rates rise and fall linearly, without dropout."""

    epochs: int = Field(default=0, ge=0)
    """Passes over the training documents; 0: the stage is left out. With 0 of both stages the
    encoder stays as it is: its vectors are compared, which takes minutes where fine-tuning takes
    hours."""
    max_steps: Positive | None = None
    """Steps after which the stage ends, if its epochs have more; the rates fall to the last one.
    None: all of the epochs."""
    batch_size: Positive
    """Documents a step; with `batch_tokens`, at most."""
    batch_tokens: Positive | None = None
    """Tokens of the documents of a step, padding included, at most; each step then has documents
    of similar length, and steps differ in their number. None: documents come as they are drawn."""
    accumulate: Positive = 1
    """Parts in which a step encodes its texts, one after the other: the same gradient, in the
    memory of one part, and a third more time (see `longtail.training.neural.loop`)."""
    encoder_learning_rate: Rate
    """Peak rate of the transformer."""
    pooler_learning_rate: Rate
    """Peak rate of both poolers."""
    classifier_learning_rate: Rate
    """Peak rate of the classifier's label weights."""


class ClassifierConfig(StageConfig):
    """The dense classifier that the dual encoder starts from (DEPL section 3.5, Eq. 3)."""

    batch_size: Positive = 32
    encoder_learning_rate: Rate = 1e-4
    pooler_learning_rate: Rate = 1e-3
    classifier_learning_rate: Rate = 5e-3


class RetrievalConfig(StageConfig):
    """The dual encoder (DEPL section 3.3)."""

    batch_size: Positive = 32
    encoder_learning_rate: Rate = 1e-4
    pooler_learning_rate: Rate = 1e-3
    classifier_learning_rate: Rate = 1e-3
    hard_negatives: int = Field(default=10, ge=0)
    """Highest-ranked wrong labels of the SVM, a document."""
    label_subset_size: Positive = 384
    """Labels a step: positives, hard negatives, and uniform draws up to this number; the paper has
    300-500. With `negatives`, the most that a step encodes: pairs beyond are left out at random."""
    loss: LossConfig = DeplLossConfig()
    """What scores cost: those of the label subset (depl), or those of pairs and their negatives
    (softmax, decoupled, ordered)."""
    negatives: NegativesConfig | None = None
    """Negatives of a loss over pairs."""
    label_pooling: Pooling | None = None
    """What the label encoder makes of a text's tokens: "mean" of the last layer over them, special
    ones ([CLS] and [SEP]) included; the mean over "words" leaves those out; that of the first
    token, "cls" (DEPL, Table 7), or of the "last" one. Null: as the encoder was trained,
    where its files say so; else "last" in decoders and "mean" in all others."""

    @model_validator(mode="after")
    def _refuse_impossible_parts(self) -> RetrievalConfig:
        self.loss.refuse(self.negatives)
        if self.negatives is None:
            return self
        kind, bound = self.negatives.distribution.kind, self.label_subset_size
        if kind == "hard" and not self.hard_negatives:
            raise ValueError(
                "distribution 'hard' draws from the hard negatives, but hard_negatives is 0"
            )
        if self.negatives.most_pairs(bound) == 0:
            raise ValueError(
                f"num_negatives is {self.negatives.num_negatives}, but a step encodes {bound} "
                "labels, that of a pair among them; lower it, or raise label_subset_size"
            )
        if self.loss.of_cosines:
            raise ValueError(f"loss {self.loss.of_cosines} wants cosines; f_dual has none")
        return self

    @property
    def learning(self) -> LearningConfig:
        """The loss and the negatives."""
        return LearningConfig(negatives=self.negatives, loss=self.loss)

    def check(self, num_labels: int) -> None:
        """Refuse what the number of labels makes impossible."""
        self.learning.check(num_labels, self.hard_negatives)
        is_all = self.negatives is not None and self.negatives.distribution.kind == "all"
        if is_all and num_labels > self.label_subset_size:
            raise ConfigError(
                f"retrieval: distribution 'all' encodes {num_labels} labels a step, "
                f"but label_subset_size is {self.label_subset_size}; raise it, or take another "
                "distribution"
            )


_DEFAULT_NEGATIVES = NegativesConfig(
    distribution=FrequencyConfig(exponent=0.5),
    weighting="importance",
    num_negatives=256,
    shared=True,
)


class LinearConfig(Section):
    """Linear scorers over the trained encoder's document vectors (Bamler & Mandt 2020)."""

    negatives: NegativesConfig = _DEFAULT_NEGATIVES
    """Labels that a pair is contrasted with. By default 256 a step by the root of their frequency,
    with importance weights, so that the scores are those of a softmax over all labels; which it is
    with no more labels. The label tree, as distribution, has its settings there."""
    loss: LossConfig = SoftmaxLossConfig()
    """Loss over pairs and their negatives: softmax, decoupled or ordered."""
    learning_rate: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """Learning rate of Adagrad, for document vectors with a mean square length of 1."""
    batch_size: Positive = 1000
    """Pairs of a document and a label, a step."""
    epochs: Positive = 10
    """Passes over all pairs."""

    @model_validator(mode="after")
    def _refuse_impossible_parts(self) -> LinearConfig:
        self.loss.refuse(self.negatives)
        if self.negatives.distribution.kind not in _KINDS:
            raise ValueError(
                f"distribution '{self.negatives.distribution.kind}' is not for linear scorers; "
                f"expected one of {', '.join(_KINDS)}"
            )
        if self.loss.of_cosines:
            raise ValueError(f"loss {self.loss.of_cosines} wants cosines; linear scores are none")
        return self

    def fitted_to(self, num_labels: int, most_carried: float = 0.0) -> LinearConfig:
        """Return the configuration for a corpus: few labels are all scored, not drawn, by default.

        Other negatives and losses than the default's are left as they are, and refused where they
        can't be.

        Args:
            num_labels: With training documents.
            most_carried: Largest share of q that the labels of one document have; they are no
                negatives of its pairs, so something must be left to draw.
        """
        default = LinearConfig()
        is_default = (self.negatives, self.loss) == (default.negatives, default.loss)
        is_drawn = num_labels > _MOST_SCORED and most_carried <= _MAX_CARRIED
        if not is_default or is_drawn:
            return self
        parts = _ALL_LABELS if num_labels > 1 else _ONE_LABEL
        return LinearConfig.model_validate(self.model_dump() | parts)

    @property
    def learning(self) -> LearningConfig:
        """Negatives and loss."""
        return LearningConfig(negatives=self.negatives, loss=self.loss)

    @property
    def tree_fit(self) -> TreeFitConfig | None:
        """The label tree that negatives are drawn from."""
        given = self.negatives.distribution
        return given if isinstance(given, TreeFitConfig) else None

    @property
    def correction(self) -> CorrectionName:
        """What makes the scores those of a softmax.

        Scores of a softmax or logistic loss with constant weights lack log q (Rawat et al. 2021,
        Table 2), where nothing is excluded; those with importance weights lack nothing.
        """
        is_constant = (self.negatives.weighting, self.negatives.exclude) == ("constant", "none")
        if not (self.loss.lacks_log_q and is_constant):
            return "none"
        if isinstance(self.negatives.distribution, TreeFitConfig):
            return "tree"
        is_prior = self.negatives.distribution in {FrequencyConfig(), WithinBatchConfig()}
        return "prior" if is_prior else "none"


_KINDS = ("uniform", "uniform_subset", "frequency", "within_batch", "all", "tree")
_MOST_SCORED = 256
_MAX_CARRIED = 0.98
"""A little less than where `longtail.training.learning.sampling` refuses to draw."""
_ALL_LABELS: dict[str, Any] = {
    "negatives": {
        "distribution": {"kind": "all"}, "weighting": "importance", "exclude": "positive"
    },
}  # fmt: skip
_ONE_LABEL: dict[str, Any] = {  # there is no other, so that draws may be the label itself
    "negatives": {
        "distribution": {"kind": "uniform"}, "weighting": "constant", "exclude": "none",
        "num_negatives": 1,
    },
    "loss": {"kind": "decoupled"},
}  # fmt: skip
