"""The options of a request, defined once for Python, the command line, HTTP and clients.

`CoreOptions` has the options that every model knows: a field each, with its type, bounds, default
and text. A fitted part adds an `Option` of its own (`longtail.models.fitted.part`). The schemas of
the service, `longtail predict` and the Python interface are made of `options_class()`. Needs
neither PyTorch nor NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import starmap
from typing import Annotated, Any, Literal, LiteralString, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from longtail.models.errors import ConfigError, RequestError
from longtail.models.files.typed_json import problem_in_words, scalar_in_words
from longtail.models.labels.filters import LabelFilter, LabelSet

AimName = Literal["precision", "propensity"]
"""The measure that an answer is ranked for: P@k or PSP@k."""
PRECISION: AimName = "precision"
PROPENSITY: AimName = "propensity"
AIM_NAMES: tuple[AimName, ...] = (PRECISION, PROPENSITY)

DEFAULT_K = 5
"""Labels of a text where nobody says how many; of a model with fewer, all of them."""
AUTO = "auto"
AUTO_K = 50
"""The same with the threshold "auto", which looks at as many labels of a text."""
MAX_TAIL_DIAL = 1000.0
"""Above it, float32 scores would differ by the frequency of labels alone."""
MAX_ITEMS = 300_000
"""Most items of a list in a request for which no smaller bound is known; the same as
`longtail.service.wire.lines.MAX_ELEMENTS`."""
MAX_VERSION = 9 * 10**18
"""A 64-bit number that is exact as a float, as OpenAPI documents write it."""


def as_one_error(kind: LiteralString, wanted: LiteralString) -> WrapValidator:
    """Return a validator that gives one error instead of one for each type that a value could have.

    Those would name pydantic's types as if they were fields.

    Args:
        kind: Kind of the error.
        wanted: The expected value, in words.
    """

    def check(value: object, validate: Callable[[object], object]) -> object:
        try:
            return validate(value)
        except ValidationError as error:
            raise PydanticCustomError(
                kind, wanted + "; got {value}", {"value": scalar_in_words(value)}
            ) from error

    return WrapValidator(check)


def _whole(value: object) -> object:
    """Turn 3.0 into 3: JSON knows no difference."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _object_of(value: object) -> object:
    """Return the object that a string holds: a query and a command line have nothing else."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    return value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
VersionNumber = Annotated[int, Field(ge=1, le=MAX_VERSION), BeforeValidator(_whole)]
Version = Annotated[
    VersionNumber | Literal["current"],
    as_one_error("model_version", "Give a version as a whole number from 1, or as 'current'"),
]
Item = TypeVar("Item")
Listed: TypeAlias = Annotated[list[Item], Field(max_length=MAX_ITEMS, fail_fast=True)]
"""A list of a request: bounded; validation stops at its first wrong item."""
_LabelSetName = Annotated[str, Field(min_length=1, max_length=100)]
_SchemeName = Annotated[str, Field(min_length=1, max_length=1000)]
_Threshold = Annotated[
    Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | Literal["auto"],
    as_one_error("threshold", "Give a probability from 0 to 1, or 'auto'"),
]
_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a fitted part adds to requests; a model without the part refuses it.

    Attributes:
        name: Its name.
        type: What it may be, with bounds, as pydantic reads it. None, its default, is no value.
        text: What it does, in Markdown; the first sentence is the help of `longtail predict`.
        is_of_scheme: Whether each of several schemes may have its own.
        refused: Given all options of a request, returns why this one does not go with others;
            empty where it can.
    """

    name: str
    type: Any
    text: str
    is_of_scheme: bool = False
    refused: Callable[[CoreOptions], str] = field(default=lambda _: "")


_OF_PARTS: dict[str, Option] = {}


def register_option(option: Option) -> None:
    """Add an option; once requests are read, it is too late."""
    if option.name in {*CoreOptions.model_fields, *_OF_PARTS} or not option.name.isidentifier():
        raise ConfigError(
            f"option {option.name!r}: expected a name of letters, digits and _ that no other "
            f"option has; there are {', '.join((*CoreOptions.model_fields, *_OF_PARTS))}"
        )
    if options_class.cache_info().currsize:
        raise ConfigError(
            f"option {option.name!r}: requests have been read without it; import the package that "
            "registers it before the first request, and before longtail.service"
        )
    _OF_PARTS[option.name] = option


def _no_set(name: str) -> LabelSet:
    raise RequestError(f"label set {name!r}: sets are stored by a service; give the ids themselves")


class CoreOptions(BaseModel):
    """What to answer about a text."""

    model_config = _CONFIG

    k: WholeNumber = Field(DEFAULT_K, ge=1)
    """Labels to return for each text; absent: 5 (50 with the threshold `auto`), or all of a model
    that has fewer."""
    scorer: Annotated[str, Field(max_length=100)] | None = None
    """How to score labels; one of the model's `scorers`, its default where absent."""
    threshold: _Threshold | None = None
    """Return only labels of at least this probability; or `auto`: as many labels as the text needs
    by their probabilities, at most `k`, which is 50 then where it is absent. For scorers that give
    probabilities; `auto` for those with one of the model's `thresholds`, and not with an aim. The
    answer has `warnings` where labels passed whose probabilities are often far too high."""
    correction: Literal["none", "prior", "tree"] | None = None
    """What to add to the scores against the bias of negative sampling: nothing, or what the scorer
    was trained with, which is also the default."""
    tail_dial: float = Field(0.0, ge=0, le=MAX_TAIL_DIAL, allow_inf_nan=False)
    """Strength of logit adjustment at query time: this times the log of a label's share of the
    training data is subtracted from its score, so that more of it favours rare labels. Above 0,
    labels have no probabilities."""
    aim: AimName | None = None
    """The measure to rank for: `precision` (most labels right; the default), or `propensity`
    (propensity-scored precision, which favours rare labels). With the latter, `score` is the
    probability times the label's inverse propensity, `probability` stays as it is, and `threshold`
    leaves only labels of that probability to choose from. Not together with `tail_dial`; for
    scorers with probabilities fitted on a dev split (`GET /v1/models`)."""
    include: Listed[str] | None = Field(None, examples=[["1264", "1309"]])
    """Ids of the only labels to return, together with those of `include_set`; all where neither is
    given. The answer stays exact."""
    exclude: Listed[str] = Field(default_factory=list, examples=[["2136"]])
    """Ids of labels not to return, even if they are included."""
    include_set: _LabelSetName | None = None
    """Name of a stored set of labels (`GET /v1/label-sets`) to return besides `include`."""
    exclude_set: _LabelSetName | None = None
    """Name of a stored set of labels not to return besides `exclude`."""
    under: Listed[str] = Field(default_factory=list, examples=[["5360"]])
    """Ids of labels: only these are returned, and those that are below them in the vocabulary, of
    what the fields above let through."""
    schemes: Mapping[str, Any] | None = None
    """The best labels of each of these schemes, by its own options, where a label file has schemes.
    The answer is exact in each; every label says its `scheme`."""
    language: Annotated[str, Field(max_length=100)] | None = None
    """Language of the labels' names, one of the model's `languages`; a label that has no name in it
    keeps its own. Absent: the language that was chosen in training."""
    explain: bool = False
    """Whether to explain why each label was found."""
    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""

    @property
    def num_labels(self) -> int:
        """Labels to return for each text, of all schemes together."""
        return sum(x.k or self.k for x in self.schemes.values()) if self.schemes else self.k

    @property
    def filters_labels(self) -> bool:
        """Whether only some of the labels may be returned."""
        named = self.exclude or self.include_set or self.exclude_set or self.under
        return self.include is not None or bool(named)

    @model_validator(mode="after")
    def _can_stand_together(self) -> CoreOptions:
        if self.aim is not None and self.tail_dial > 0:
            raise PydanticCustomError(
                "aim_or_tail_dial",
                "Give only one of 'aim' and 'tail_dial': each says how much rare labels count",
            )
        if self.aim == PROPENSITY and self.threshold == AUTO:
            raise PydanticCustomError(
                "aim_or_auto", "Give only one of 'aim' and the threshold 'auto'"
            )
        for option in _OF_PARTS.values():
            if getattr(self, option.name, None) is not None and (why := option.refused(self)):
                raise PydanticCustomError(
                    "options_together",
                    "{why}",
                    {"why": why},
                )
        return self

    def ranking(
        self,
        num_labels: int,
        label_set: Callable[[str], LabelSet] = _no_set,
        label_filter: LabelFilter | None = None,
    ) -> RankingOptions:
        """Return what is asked of a ranking.

        Args:
            num_labels: The model's number of labels.
            label_set: Returns a stored set of labels by its name.
            label_filter: A filter beside the options; None: there is none.
        """
        if self.filters_labels:
            label_filter = self._filter(label_filter or LabelFilter(), label_set)
        has_own_k = "k" in self.model_fields_set
        asked = RankingOptions(
            k=self.k if has_own_k else default_k(self.threshold, num_labels),
            scorer=self.scorer,
            threshold=self.threshold,
            correction=self.correction,
            tail_dial=self.tail_dial,
            aim=self.aim,
            label_filter=label_filter,
            explain=self.explain,
            of_parts=_of_parts(self),
        )
        if not self.schemes:
            return asked
        return replace(asked, schemes=tuple(starmap(asked.of_scheme, self.schemes.items())))

    def _filter(self, beside: LabelFilter, label_set: Callable[[str], LabelSet]) -> LabelFilter:
        changes: dict[str, Any] = {
            name: label_set(value)
            for name in ("include_set", "exclude_set")
            if (value := getattr(self, name)) is not None
        }
        if self.include is not None:
            changes["include"] = tuple(self.include)
        changes |= {x: tuple(ids) for x in ("exclude", "under") if (ids := getattr(self, x))}
        return replace(beside, **changes)


@cache
def options_class() -> type[CoreOptions]:
    """Return the class of all options: those of every model, and those of registered parts."""
    own: dict[str, Any] = {
        option.name: (option.type | None, Field(None, description=option.text))
        for option in _OF_PARTS.values()
    }
    of_scheme: dict[str, Any] = {
        "k": (Annotated[WholeNumber, Field(ge=1)] | None, Field(None, description="Labels of it.")),
        "threshold": (_Threshold | None, Field(None, description="Least probability of a label.")),
        **{option.name: own[option.name] for option in _OF_PARTS.values() if option.is_of_scheme},
    }
    doc = "What to answer of one scheme; fields that are absent are those of the request."
    scheme = create_model("SchemeOptions", __config__=_CONFIG, __doc__=doc, **of_scheme)
    schemes = Annotated[
        dict[_SchemeName, scheme],
        Field(min_length=1, max_length=20),
        BeforeValidator(_object_of),
    ]
    examples = [{"topic": {"k": 5}, "genre": {"k": 2, "threshold": 0.5}}]
    text = CoreOptions.model_fields["schemes"].description
    own["schemes"] = (schemes | None, Field(None, description=text, examples=examples))
    return create_model("Options", __base__=CoreOptions, __doc__=CoreOptions.__doc__, **own)


def _of_parts(asked: BaseModel) -> tuple[tuple[str, Any], ...]:
    values = ((name, getattr(asked, name, None)) for name in _OF_PARTS)
    return tuple((name, value) for name, value in values if value is not None)


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """What a ranking is asked for; texts of equal options are ranked together.

    Attributes:
        k: Number of labels per text, at least 1.
        scorer: One of the model's; None: its default.
        threshold: Least probability of a label, from 0 to 1; "auto": as many labels as the text
            needs (see `longtail.models.fitted.label_counts`), at most k; None: labels of any.
        correction: What is added to the scores: "none", or what the scorer was trained with; None:
            the latter.
        tail_dial: tau, from 0 to `MAX_TAIL_DIAL`: tau times log pi_y is taken off the score of
            every label y, pi_y being its share of the training pairs (logit adjustment; Menon et
            al. 2021). Above 0, scores are no log-odds any more, and labels have no probabilities.
        aim: The measure to rank for: "precision" (P@k), the same as None, or "propensity" (PSP@k),
            with which the score is the probability times the inverse propensity (see
            `longtail.models.scorers.propensity`); labels keep their probabilities.
        label_filter: Whose labels are returned; None: all.
        explain: Whether to say why a text got each label; some milliseconds a label.
        schemes: What to answer of each of several schemes instead.
        of_parts: Options of fitted parts by name, such as "accept"; those that are given.
    """

    k: int = DEFAULT_K
    scorer: str | None = None
    threshold: float | Literal["auto"] | None = None
    correction: str | None = None
    tail_dial: float = 0.0
    aim: str | None = None
    label_filter: LabelFilter | None = None
    explain: bool = False
    schemes: tuple[RankingOptions, ...] = ()
    of_parts: tuple[tuple[str, Any], ...] = ()

    def of_part(self, name: str) -> Any:
        """Return an option of a fitted part; None where it is not given."""
        return dict(self.of_parts).get(name)

    @property
    def ranked_by(self) -> str:
        """What labels are ranked by besides the score, in words; empty: nothing."""
        dial = f"tail dial {self.tail_dial:g}" if self.tail_dial else ""
        return ", ".join(filter(None, (dial, f"aim {self.aim}" if self.aim else "")))

    def of_scheme(self, name: str, own: BaseModel) -> RankingOptions:
        """Return the same for the labels of one scheme, which may have options of its own.

        Labels of each scheme are ranked apart, and a label of two of them is answered twice.
        """
        given = {x: getattr(own, x) for x in ("k", "threshold") if getattr(own, x) is not None}
        return replace(
            self,
            label_filter=replace(self.label_filter or LabelFilter(), scheme=name),
            of_parts=tuple((dict(self.of_parts) | dict(_of_parts(own))).items()),
            explain=False,
            **given,
        )


def default_k(threshold: object, num_labels: int) -> int:
    """Return the labels of a text where nobody says how many."""
    return min(AUTO_K if threshold == AUTO else DEFAULT_K, num_labels)


def asked_of(given: Mapping[str, Any], num_labels: int) -> RankingOptions:
    """Return what keyword arguments ask for: options, and `label_filter`, a `LabelFilter`.

    Args:
        given: By name.
        num_labels: The model's number of labels.
    """
    if given.get("version") is not None:
        raise RequestError("version: a loaded model is one version; load another one")
    label_filter = given.get("label_filter")
    if not isinstance(label_filter, LabelFilter | None):
        raise RequestError(f"label_filter is {_shown(label_filter)}; expected a LabelFilter")
    options = {name: value for name, value in given.items() if name != "label_filter"}
    return options_of(options).ranking(num_labels, label_filter=label_filter)


def options_of(given: Mapping[str, Any]) -> CoreOptions:
    """Return options that were given as keyword arguments in Python."""
    values = {name: _plain(value) for name, value in given.items()}
    try:
        return options_class().model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(map(str, found["loc"])) or "options"
        if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
            names = ", ".join(options_class().model_fields)
            raise RequestError(f"there is no option {where!r}; expected some of {names}") from error
        words = problem_in_words(found, _shown)
        is_value = words.startswith("got ")
        raise RequestError(
            f"{where} is {words.removeprefix('got ')}" if is_value else f"{where}: {words}"
        ) from error


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and a tuple or an array as a list."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | frozenset | set) else value


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"
