"""A new version of a model that makes promises, found on documents of a split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.outputs import check_readable_file
from longtail.models.files.rows import Fields, take_csv_rows
from longtail.models.fitted.promises import PRECISION_PROMISE, PROMISES, BandRule, Measure, Promise
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import documents_of, split_batches
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import find_trained_on
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.record import markdown_table
from longtail.training.fitted.fitting import AnswerCollector, AnsweredDocuments
from longtail.training.fitted.promises import BAND_STARTS, WHOLE, bands_by_name, fit_promise

_ID, _THRESHOLD = "id", "threshold"
_COLUMNS = ("training documents", "thresholds", "accepted", "right")
_MAX_SHOWN = 3


def promises_to_markdown(promises: Sequence[Promise]) -> str:
    """Return a sentence, a table and reasons for refusals of each promise."""
    parts = []
    for each in promises:
        what = "of the accepted labels are right"
        if each.measure != PRECISION_PROMISE:
            what = "of the labels that a text carries are accepted, in the mean over texts"
        bands = bands_by_name(each)
        where = "in each band with thresholds, all at once"
        if len(bands) == 1:
            where = "of all bands together, but not in each"
        table = markdown_table(_COLUMNS, [_band_cells(*named) for named in bands.items()])
        parts.append(
            f"With confidence {each.confidence:g}, at least {100 * each.level:g} % {what}, by "
            f"{each.scorer}, {where} (found on {each.num_documents:,} documents):\n\n{table}"
        )
        refused = (f"- None for {x}: {band.refusal}." for x, band in bands.items() if band.refusal)
        parts.append("\n".join(refused))
    if num_own := len(promises[0].label_thresholds):
        parts.append(
            f"{num_own:,} labels have a threshold that people have set, by which alone they are "
            "accepted; nothing is promised of them."
        )
    return "\n\n".join(filter(None, parts))


def _band_cells(name: str, band: BandRule) -> list[str]:
    if not band.thresholds:
        return [name, "none", "", ""]
    different = [f"{threshold:.2f}" for threshold in dict.fromkeys(band.thresholds)]
    shown = ", ".join(different[:_MAX_SHOWN]) + ", ..." * (len(different) > _MAX_SHOWN)
    share = f"{100 * band.num_right / max(1, band.num_accepted):.1f} %"
    return [name, shown, f"{band.num_accepted:,}", share]


def answer_split(
    bundle: Bundle, dataset: Dataset, split_name: str, scorer: str
) -> AnsweredDocuments:
    """Return what a model answers about the documents that it was not trained on."""
    if scorer not in bundle.manifest.calibrations:
        calibrated = ", ".join(bundle.manifest.calibrations)
        remedy = f"expected one of {calibrated}" if calibrated else "train with a dev split"
        raise ConfigError(f"scorer {scorer!r}: its probabilities were not calibrated; {remedy}")
    dataset = find_trained_on([bundle], dataset, split_name).view(dataset, split_name)
    split = dataset.split(split_name)
    truth, _ = truth_of(bundle.catalogue, dataset, split.scan().labels)
    predictor = Predictor(read_parts(bundle), default_scorer=scorer)
    collector = AnswerCollector(predictor, scorer, truth, bundle.manifest.training_document_count)
    batches = split_batches(predictor, split, split_name, by_all=False)
    for _ in collector.watch(batches):
        pass
    return collector.documents


def find_promises(
    bundle: Bundle,
    dataset: Dataset,
    split_name: str,
    wanted: Sequence[tuple[Measure, float]],
    confidence: float,
    scorer: str | None = None,
    label_thresholds: Mapping[int, float] | None = None,
    band_starts: Sequence[int] = BAND_STARTS,
) -> tuple[Promise, ...]:
    """Find the rules by which a model keeps promises, in the order of `wanted`.

    Where no band supports a promise, it accepts nothing (`Promise.can_accept`).

    Args:
        bundle: The model.
        dataset: As of `answer_split`.
        split_name: As there.
        wanted: What is promised; each promise is kept with the confidence.
        confidence: Between 0 and 1.
        scorer: None: the default one.
        label_thresholds: Set by people (see `read_label_thresholds`).
        band_starts: As of `fit_promise`; `WHOLE` promises of all bands together, and not of each.
    """
    for name, value in [*wanted, ("confidence", confidence)]:
        if not 0 < value < 1:
            raise ConfigError(f"--{name}: got {value:g}, expected a number between 0 and 1")
    scorer = bundle.manifest.default_scorer if scorer is None else scorer
    documents = answer_split(bundle, dataset, split_name, scorer)
    found_on = documents_of(dataset, split_name)
    fit = partial(fit_promise, documents, scorer, label_thresholds=label_thresholds)
    fitted = {x: fit(*x, confidence, band_starts=band_starts) for x in dict.fromkeys(wanted)}
    for asked, each in fitted.items():
        is_refused = not any(band.thresholds for band in each.bands)
        if is_refused and fit(*asked, confidence, band_starts=WHOLE).bands[0].thresholds:
            said = f"all bands together support {each.name}: see --bands all"
            logging.getLogger(__name__).warning("%s", said)
    promises = tuple(replace(each, found_on=found_on) for each in fitted.values())
    if not any(each.can_accept for each in promises):
        raise ConfigError(
            f"{dataset.folder}, split {split_name!r}: no promise can be made for any band; give "
            "more documents, a lower promise or a lower confidence\n\n"
            + promises_to_markdown(promises)
        )
    return promises


def read_label_thresholds(path: Path | None, bundle: Bundle) -> dict[int, float]:
    """Return the thresholds that people have set for labels, by the label's row.

    Args:
        path: CSV with the columns `id` and `threshold`, a probability from 0 to 1; None: those that
            the model has.
        bundle: The model.
    """
    if path is None:
        before = PROMISES.read(bundle)  # all of them have the same ones
        return dict(before[0].label_thresholds) if before else {}
    found: dict[int, float] = {}
    check_readable_file(path, "--labels")

    def take(fields: Fields) -> None:
        label_id = fields[_ID].strip()
        if (row := bundle.catalogue.row_of_id(label_id)) is None:
            raise DataError(f"the model has no label with the id {label_id!r}")
        if row in found:
            raise DataError(f"label {label_id!r} stands on an earlier line, too")
        found[row] = _probability_of(fields[_THRESHOLD].strip())

    take_csv_rows(path, ((_ID,), (_THRESHOLD,)), take, "are no thresholds of labels")
    return found


def _probability_of(cell: str) -> float:
    with suppress(ValueError):
        if 0 <= float(cell) <= 1:
            return float(cell)
    raise DataError(f"threshold is {cell!r}; expected a number from 0 to 1, such as 0.85")
