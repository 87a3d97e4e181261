"""`longtail threshold`: which labels can go through without a person, and what holds of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    DataArgument,
    JsonOption,
    OverwriteOption,
    RegistryOption,
    SplitOption,
    VersionOption,
    configure_logging,
    with_read_option,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.models.fitted.promises import Measure

_LEVELS = (0.95, 0.8, 0.9, 0.99)


@with_read_option
def threshold(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    split: SplitOption = "dev",
    precision: Annotated[
        list[float] | None,
        typer.Option(
            help="Least share of right labels among the accepted ones; repeat it for more. The "
            "first promise is the default one.",
            show_default="0.95, 0.8, 0.9, 0.99",
        ),
    ] = None,
    recall: Annotated[
        list[float] | None,
        typer.Option(help="Least share of a text's labels that are accepted; repeat it for more."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability that a promise holds in all bands at once.")
    ] = 0.9,
    bands: Annotated[
        Literal["each", "all"],
        typer.Option(help="Promise in each band, or of all bands together only, which needs less."),
    ] = "each",
    scorer: Annotated[
        str | None, typer.Option(help="Whose probabilities.", show_default="the model's default")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with the columns id and threshold: probabilities from which these "
            "labels are accepted, whatever their band; nothing is promised of them. Without it, "
            "those of the version stay.",
        ),
    ] = None,
    activate: Annotated[bool, typer.Option(help="Let 'current' name the new version.")] = True,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Find which labels are right with a promised precision; publish a version that accepts them.

    The thresholds are found for each band of rarity on documents that the model was not trained
    on. Where they can't support a promise, no label of the band is accepted, and the table says
    why. The new version has these promises in place of those that it had.
    """
    configure_logging()
    from longtail.models.bundle.registry import Registry
    from longtail.models.edit.rewriting import publish_texts
    from longtail.models.fitted.promises import PROMISES
    from longtail.training.assessment.promised import (
        find_promises,
        promises_to_markdown,
        read_label_thresholds,
    )
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.evaluation.record import check_record_file, deliver
    from longtail.training.fitted.promises import BAND_STARTS, WHOLE

    store = Registry(registry)
    bundle = store.open(version)
    store.check_writable()
    own = read_label_thresholds(labels, bundle)
    dataset = open_as_trained(data, corpus, [bundle], bundle.catalogue)
    check_record_file(json_file, inputs=dataset.paths, registry=registry, overwrite=overwrite)
    levels = _LEVELS if precision is None and recall is None else precision or ()
    wanted: list[tuple[Measure, float]] = [("precision", level) for level in levels]
    wanted += [("recall", level) for level in recall or ()]
    starts = WHOLE if bands == "all" else BAND_STARTS
    found = find_promises(bundle, dataset, split, wanted, confidence, scorer, own, starts)
    made = tuple(each for each in found if each.can_accept)
    texts = {PROMISES.file: PROMISES.to_json(made)}
    number = publish_texts(store, bundle, texts, activate=activate, action="threshold")
    figures = {
        "model": bundle.manifest.digest,
        "data": dataset.fingerprint,
        "split": split,
        "promises": [asdict(each) for each in found],
    }
    said = f"Version {number} of {str(registry)!r} promises {', '.join(x.name for x in made)}."
    if lacking := ", ".join(x.name for x in found if not x.can_accept):
        said += f" The documents do not support {lacking}, which it does not promise."
    print(deliver(json_file, figures, f"{promises_to_markdown(found)}\n\n{said}"))
