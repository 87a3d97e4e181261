"""The manifest: what a bundle holds, and the digest that pins every byte of it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from longtail.models.errors import BundleCorruptError, BundleVersionError, ConfigError
from longtail.models.files.durable import MAX_ELEMENTS, check_elements, parse_own_json
from longtail.models.files.typed_json import json_forms
from longtail.models.names import MAX_DOCUMENTS, Activation, CorrectionName, Pooling

_Total = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class LearnedFrom:
    """The version that a version was learned from, and what was learned.

    Attributes:
        version: Number of that version in the registry in which it was learned.
        digest: Its digest.
        feedback_sha256: SHA-256 of the feedback's contents, without time and author.
        corpus: Fingerprint of the corpus.
        new_documents: Texts that are training documents now and were not.
        corrected_documents: Training documents whose labels were changed.
        known_documents: Texts whose labels were known as they were said to be.
        left_out_texts: Texts that are in the corpus's dev or test split.
        unresolved_entries: Entries without a text whose text is not in the corpus.
        unknown_labels: Ids that are said to be right or wrong and are no label's.
        new_labels: Labels that the version before lacked.
    """

    __pydantic_config__: ClassVar = _STRICT
    version: _Total
    digest: str
    feedback_sha256: str
    corpus: str
    new_documents: _Total
    corrected_documents: _Total
    known_documents: _Total
    left_out_texts: _Total
    unresolved_entries: _Total
    unknown_labels: _Total
    new_labels: _Total


FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
RESTORE = "copy the bundle again from its source, or train again with 'longtail train'"
"""What to do about a bundle that is not as it was written."""
MAX_MANIFEST_BYTES = 2**24
_MAX_SHOWN = 500
"""Characters of an error that are kept: it may list many numbers."""
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Text = Annotated[str, Field(max_length=2**16)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Number = Annotated[float, Field(ge=-1e12, le=1e12)]
"""Larger ones could make scores that are not finite."""
_Numbers = tuple[_Number, ...]
_Counts = tuple[Annotated[int, Field(ge=0, le=MAX_DOCUMENTS)], ...]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a file must be: the hex sha256 of its bytes, and their number."""

    __pydantic_config__: ClassVar = _STRICT
    sha256: _Text
    size_bytes: _Count


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What an array must be: its sizes, and its type as safetensors names it ("F32", "I64")."""

    __pydantic_config__: ClassVar = _STRICT
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """The text encoder of a bundle.

    Attributes:
        name: Where it came from: "packaged", a folder's name, or a hub id.
        dim: Width of document and label vectors.
        max_tokens: Tokens that the encoder reads of a text; what is behind them is cut off, and
            answers say so.
        sha256: SHA-256 of the weights that training started from.
        document_prefix: Put before each document.
        label_prefix: Put before each label's text.
        document_pooling: What stands for a document; how labels are pooled is among the settings of
            the training.
        activation: Activation of both poolers' output.
        is_normalized: Whether all vectors have one length.
        is_tuned: Whether it was fine-tuned on the corpus.

    The last six are written only where they are not the defaults, those of DEPL.
    """

    __pydantic_config__: ClassVar = _STRICT
    name: _Text
    dim: _Count
    max_tokens: Annotated[int, Field(ge=1, le=2**17)]
    sha256: _Text
    document_prefix: _Text = ""
    label_prefix: _Text = ""
    document_pooling: Pooling = "cls"
    activation: Activation = "identity"
    is_normalized: bool = False
    is_tuned: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        given = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != given[name]}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How scores become log-odds that a label is right: a line with bends, rising everywhere.

    Attributes:
        knots: The scores at which it bends, rising; at least one.
        slopes: Slope of each piece, from below the first knot to above the last, in nats a score;
            all above 0, so that labels keep their order.
        intercept: The log-odds at the first knot, in nats.
        counts: Training documents n where the line by rarity bends, rising; the first is 0. The
            probability of a label is the sigmoid of shift(n) + factor(n) times its log-odds; both
            are piecewise linear in ln(1 + n), and constant beyond the last. Rankings and blends
            know nothing of it.
        shifts: At each of them, in nats.
        factors: At each of them; above 0.
    """

    __pydantic_config__: ClassVar = _STRICT
    knots: _Numbers
    slopes: _Numbers
    intercept: _Number
    counts: _Counts = (0,)
    shifts: _Numbers = (0.0,)
    factors: _Numbers = (1.0,)


@dataclass(frozen=True, slots=True)
class RarityBlend:
    """A blend of scorers whose weights depend on how often a label was seen in training.

    Its score for a label with n training documents is h(n, a(n) + sum_i e_i), where e_i is
    w_i(n) max(g_i, f_i) + v_i(n) min(g_i - f_i, 0), with the calibrated log-odds g_i of each
    scorer. The intercept a, the weights w_i and v_i, and the levels and slopes of the curve h are
    piecewise linear in ln(1 + n) between the knots, and constant beyond the last.

    Attributes:
        counts: n at each knot, rising; the first is 0.
        intercepts: a at each knot, in nats.
        weights: w_i of each scorer at each knot, at least 0, so that the blend rises with them.
        floors: f_i of each scorer, in nats: what it says of a label that it gives no score.
        below: v_i of each scorer at each knot, at least 0; empty: 0 of all.
        curve_bends: Where the curve may bend, in nats of the sum, rising; none: it is straight.
        curve_levels: The score at the first bend, at each knot, in nats.
        curve_slopes: Slope of each piece of the curve, from the lowest on, at each knot; above 0.
    """

    __pydantic_config__: ClassVar = _STRICT
    counts: _Counts
    intercepts: _Numbers
    weights: dict[str, _Numbers]
    floors: dict[str, _Number]
    below: dict[str, _Numbers] = field(default_factory=dict)
    curve_bends: _Numbers = ()
    curve_levels: _Numbers = ()
    curve_slopes: tuple[_Numbers, ...] = ()


_NOT_WRITTEN_EMPTY: dict[str, Any] = {"default_scorer_reason": "", "retired_label_count": 0}
"""Fields that are written only where they hold something, and what they are otherwise."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a bundle but its arrays.

    It holds nothing that differs between two trainings with one seed, so equal digests mean equal
    bundles; times are in the registry and in the run's folder.

    Attributes:
        label_count: Number of labels in the catalogue.
        training_document_count: Number of documents that the model was trained on; what needs an
            encoder was not, of the held-out ones.
        encoder: The text encoder; None where there is the sparse model only.
        scorers: Scorers that the bundle has, in the order to show them.
        default_scorer: The scorer of requests that name none, chosen on the dev split.
        training: All of the run's configuration that decided what it learned.
        data_fingerprint: sha256 over the files of the corpus.
        metrics: Metrics of every scorer on the dev split; empty without a dev split.
        held_out_documents: How many training documents stood for the dev split of a corpus that has
            none; None where it has one, or where nothing was measured. Metrics and calibrations
            are of the model before its sparse part was trained again, on these documents too.
        linear_correction: What the scorer `linear` was trained to be corrected with; None where
            there is no such scorer.
        calibrations: Calibration of every scorer that was calibrated, on the dev split.
        blends: Scorers that blend others, by name, as they were fitted on the dev split.
        thresholds: For each scorer with a calibration, the probability from which all labels
            answered have the best micro-F1 on the dev split.
        files: Every file of the bundle but the manifest, by its path inside it.
        tensors: Every array, by path and name.
        learned_from: The version and the feedback that it was learned from; None, and not written,
            where it was trained.
        default_scorer_reason: Why it was chosen, as a sentence with the figures; empty, and not
            written, where nothing was chosen.
        retired_label_count: Those that no scorer answers any more; written where there are some.
        longtail_version: The release that wrote it.
        format_version: Version of the bundle's layout.
        digest: sha256 over all the above.
    """

    __pydantic_config__: ClassVar = _STRICT
    label_count: _Count
    training_document_count: _Count
    encoder: EncoderInfo | None
    scorers: tuple[_Text, ...]
    default_scorer: _Text
    training: dict[str, Any]
    data_fingerprint: _Text
    metrics: dict[str, Any]
    held_out_documents: int | None = None
    linear_correction: CorrectionName | None = None
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    blends: dict[str, RarityBlend] = field(default_factory=dict)
    thresholds: dict[str, _Share] = field(default_factory=dict)
    files: dict[str, FileInfo] = field(default_factory=dict)
    tensors: dict[str, dict[str, TensorInfo]] = field(default_factory=dict)
    learned_from: LearnedFrom | None = None
    default_scorer_reason: _Text = ""
    retired_label_count: _Count = 0
    longtail_version: _Text = ""
    format_version: int = FORMAT_VERSION
    digest: str = ""

    def of_labels(self, num_labels: int, num_in_use: int) -> Manifest:
        """Return the manifest of a model of other labels, some of which may be out of use."""
        num_retired = num_labels - num_in_use
        return replace(self, label_count=num_labels, retired_label_count=num_retired)

    @property
    def labels_in_words(self) -> str:
        """How many labels there are, and how many of them no scorer answers any more."""
        num_retired = self.retired_label_count
        retired = f", {num_retired:,} of them retired" if num_retired else ""
        return f"{self.label_count:,}{retired}"

    @property
    def is_confidential(self) -> bool:
        """Whether nothing that is shown of the model may show words of its training documents."""
        return self.training.get("confidential") is True

    @property
    def chosen_on(self) -> str:
        """What the metrics, the calibrations and the default scorer come from, in words."""
        if self.held_out_documents is not None:
            return f"{self.held_out_documents:,} held-out training documents"
        return "the dev split" if self.metrics else "nothing"

    def check_asked(self, scorer: str | None, k: int) -> None:
        """Refuse a scorer that the model lacks, and more labels than it has, by ConfigError."""
        if scorer not in {None, *self.scorers}:
            known = ", ".join(self.scorers)
            raise ConfigError(f"scorer is {scorer!r}; expected one of the model's: {known}")
        if k > self.label_count:
            raise ConfigError(f"k is {k}; expected 1 to {self.label_count}, the number of labels")

    def to_json(self) -> str:
        """Return the one way to write this manifest, with its digest."""
        content = {x: y for x, y in asdict(self).items() if y or x not in _NOT_WRITTEN_EMPTY}
        content["encoder"] = None if self.encoder is None else self.encoder.to_json()
        if self.learned_from is None:
            del content["learned_from"]
        content["metrics"] = _without_nan(self.metrics)
        content["digest"] = digest_of(content)
        return _canonical(content)

    @classmethod
    def from_json(cls, text: str, where: str) -> Manifest:
        """Read and check a manifest.

        Args:
            text: What `to_json` wrote.
            where: Name of the bundle, for messages.
        """
        try:
            check_elements(text, MAX_ELEMENTS)
            content = parse_own_json(text)
            version = content["format_version"]
            canonical, digest = _canonical(content), digest_of(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BundleCorruptError(
                f"{where}: {MANIFEST_NAME} is not a bundle's manifest ({error!r}); {RESTORE}"
            ) from error
        if type(version) is not int or version != FORMAT_VERSION:
            raise BundleVersionError(
                f"{where}: {MANIFEST_NAME} has format version {version!r}, expected "
                f"{FORMAT_VERSION}; install the release that wrote it "
                f"({content.get('longtail_version')!r}) or train again with this one"
            )
        if content.get("digest") != digest or text != canonical:
            raise BundleCorruptError(
                f"{where}: {MANIFEST_NAME} was changed after it was written (its digest does not "
                f"match); {RESTORE}"
            )
        return _manifest_of(text, content, where)


def digest_of(content: dict[str, Any]) -> str:
    """Return the sha256 over a manifest's content, its digest left out."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(_canonical(rest).encode("utf-8", "surrogatepass")).hexdigest()


def _without_nan(value: Any) -> Any:
    """Return metrics with None for numbers that are not finite: JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _canonical(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=True, indent=1, sort_keys=True) + "\n"


_, _read = json_forms(Manifest)


def _manifest_of(text: str, content: dict[str, Any], where: str) -> Manifest:
    optional = {"learned_from", *_NOT_WRITTEN_EMPTY}
    if lacking := {item.name for item in fields(Manifest)} - optional - set(content):
        raise BundleCorruptError(
            f"{where}: {MANIFEST_NAME} lacks the fields {', '.join(sorted(lacking))}; {RESTORE}"
        )
    try:
        manifest: Manifest = _read(text)
        _check_held_out(manifest)
        if odd := manifest.thresholds.keys() - manifest.calibrations.keys():
            raise ValueError(f"thresholds of {sorted(odd)}, which are not calibrated")
        for name, calibration in manifest.calibrations.items():
            check_calibration(name, calibration)
        for name, blend in manifest.blends.items():
            _check_blend(name, blend)
            _check_members(name, blend, manifest)
    except (TypeError, ValueError) as error:
        raise BundleCorruptError(
            f"{where}: {MANIFEST_NAME} has a field of the wrong form ({str(error)[:_MAX_SHOWN]}); "
            f"{RESTORE}"
        ) from error
    return manifest


def _check_held_out(manifest: Manifest) -> None:
    found, total = manifest.held_out_documents, manifest.training_document_count
    if found is not None and not 0 < found < total:
        raise TypeError(f"held_out_documents {found!r}, expected None or 1 to {total - 1}")


def check_calibration(name: str, found: Calibration) -> None:
    """Refuse a calibration that does not rise everywhere, by TypeError."""
    _check_knots(name, found.knots)
    if len(found.slopes) != len(found.knots) + 1 or min(found.slopes) <= 0:
        raise TypeError(
            f"the slopes of {name!r}, {found.slopes}, expected {len(found.knots) + 1} above 0"
        )
    _check_counts(name, found.counts)
    size, factors = len(found.counts), found.factors
    if len(found.shifts) != size or len(factors) != size or min(factors) <= 0:
        raise TypeError(f"{name!r}: expected {size} shifts, and as many factors above 0")


def _check_blend(name: str, found: RarityBlend) -> None:
    counts = found.counts
    _check_counts(name, counts)
    curve = [found.curve_levels, *found.curve_slopes] if found.curve_bends else []
    weights = [*found.weights.values(), *found.below.values()]
    if any(len(row) != len(counts) for row in [found.intercepts, *weights, *curve]):
        raise TypeError(f"{name!r}: expected as many numbers as the {len(counts)} knots")
    if not found.weights or min(min(row) for row in weights) < 0:
        raise TypeError(f"weights {weights} of {name!r}, expected some, at least 0 each")
    if set(found.floors) != set(found.weights) or set(found.below) - set(found.weights):
        raise TypeError(f"{name!r}: expected a floor for each of its weights")
    _check_curve(name, found)


def _check_counts(name: str, counts: tuple[int, ...]) -> None:
    _check_knots(name, counts)
    if counts[0] != 0:
        raise TypeError(f"knots {counts} of {name!r}, expected whole numbers from 0 on")


def _check_members(name: str, found: RarityBlend, manifest: Manifest) -> None:
    if name not in manifest.scorers:
        raise TypeError(f"{name!r} is a blend, expected a scorer")
    for member in found.weights:
        if member not in manifest.scorers or member not in manifest.calibrations:
            raise TypeError(f"a weight of {member!r}, which is not calibrated or no scorer")


def _check_curve(name: str, found: RarityBlend) -> None:
    if found.curve_bends:
        _check_knots(name, found.curve_bends)
    num_slopes = len(found.curve_bends) + 1 if found.curve_bends else 0
    is_rising = all(slope > 0 for row in found.curve_slopes for slope in row)
    if len(found.curve_slopes) != num_slopes or not is_rising:
        raise TypeError(
            f"slopes {found.curve_slopes} of {name!r}, expected {num_slopes} rows above 0"
        )


_MAX_KNOTS = 1000
"""Each costs time for every score."""


def _check_knots(name: str, knots: tuple[int | float, ...]) -> None:
    if not 1 <= len(knots) <= _MAX_KNOTS:
        raise TypeError(f"{name!r} has {len(knots)} knots, expected 1 to {_MAX_KNOTS}")
    if any(a >= b for a, b in pairwise(knots)):
        raise TypeError(f"the knots of {name!r}, {knots}, do not rise")
