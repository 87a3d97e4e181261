"""`longtail review`: how much the scores of a reviewer count beside the model's own."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

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


@with_read_option
def review(
    data: DataArgument,
    reviewer: Annotated[
        str,
        typer.Option(
            envvar="LONGTAIL_REVIEWER", help="Kind of reviewer: rerank, chat or cross-encoder."
        ),
    ],
    address: Annotated[
        str,
        typer.Option(
            envvar="LONGTAIL_REVIEW_ADDRESS",
            help="URL of the reviewer, or folder of the cross-encoder. Texts are sent to it.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(envvar="LONGTAIL_REVIEW_MODEL", help="Model, as the reviewer names it."),
    ] = "",
    key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="LONGTAIL_REVIEW_KEY_FILE",
            help="File of the reviewer's key; or give the key as LONGTAIL_REVIEW_KEY.",
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    split: SplitOption = "dev",
    documents: Annotated[int, typer.Option(min=1, help="Documents to review.")] = 300,
    candidates: Annotated[
        int, typer.Option(min=2, max=50, help="Labels of each to review, the best ones.")
    ] = 20,
    scorer: Annotated[
        str | None, typer.Option(help="Whose labels.", show_default="the model's default")
    ] = None,
    train_documents: Annotated[
        int,
        typer.Option(
            min=0,
            help="Train a cross-encoder on so many training documents first, and write it to "
            "--address, a folder that is not there yet; 0: none.",
        ),
    ] = 0,
    activate: Annotated[bool, typer.Option(help="Let 'current' name the new version.")] = True,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Fit how much a reviewer's scores count, by rarity; publish a version that knows it.

    The reviewer scores the best labels of some documents that the model was not trained on. Where
    it brings nothing on held-out halves of them, nothing is published.
    """
    configure_logging()
    if train_documents:
        _check_training(reviewer, Path(address), registry)
    from longtail.ext.review.reviewed import find_review
    from longtail.ext.review.reviewer import open_reviewer
    from longtail.models.bundle.registry import Registry
    from longtail.models.edit.rewriting import publish_texts
    from longtail.models.fitted.review import REVIEW
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.evaluation.record import check_record_file, deliver

    store = Registry(registry)
    bundle = store.open(version)
    store.check_writable()
    dataset = open_as_trained(data, corpus, [bundle], bundle.catalogue)
    check_record_file(json_file, inputs=dataset.paths, registry=registry, overwrite=overwrite)
    if train_documents:
        from longtail.ext.review.cross_encoder_training import train_cross_encoder

        train_cross_encoder(bundle, dataset, Path(address), train_documents, scorer)
    key = os.environ.get("LONGTAIL_REVIEW_KEY", "")
    found = find_review(
        bundle, dataset, split, open_reviewer(reviewer, address, model, key, key_file),
        num_documents=documents, num_candidates=candidates, scorer=scorer,
    )  # fmt: skip
    found.check_gain()
    texts = {REVIEW.file: REVIEW.to_json(found.review)}
    number = publish_texts(store, bundle, texts, activate=activate, action="review")
    figures = {
        "model": bundle.manifest.digest,
        "data": dataset.fingerprint,
        "split": split,
        "failed": found.num_failed,
        "nats": found.gain.nats,
        "standard_error": found.gain.standard_error,
        "evaluation": found.evaluation.to_json(),
        "review": asdict(found.review),
    }
    told = f"Version {number} of {str(registry)!r} counts this reviewer's scores."
    text = f"{found.to_markdown()}\n\n{told}"
    print(deliver(json_file, figures, text))


def _check_training(reviewer: str, folder: Path, registry: Path) -> None:
    """Refuse to train a model that is no cross-encoder, or to overwrite anything."""
    from longtail.models.errors import ConfigError
    from longtail.models.extras import require
    from longtail.models.files.outputs import check_not_in_registry, check_writable_folder

    if reviewer != "cross-encoder":
        raise ConfigError(f"--train-documents: got reviewer {reviewer!r}, expected 'cross-encoder'")
    require("cpu", "--train-documents")
    if os.path.lexists(folder):
        raise ConfigError(
            f"--address {str(folder)!r} already exists; leave --train-documents out to use the "
            "cross-encoder in it, or choose another folder"
        )
    check_not_in_registry(folder, registry, "--address")
    check_writable_folder(folder, "--address")
