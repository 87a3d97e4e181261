"""The commands of the offline side: `longtail train` and `longtail evaluate`."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_REGISTRY = Path("registry")

RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
DataArgument = Annotated[
    Path, typer.Argument(help="Folder of the corpus: XMC raw text, JSON lines or CSV.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without documents that can't be used.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log every stage.")]


def add_commands(app: typer.Typer) -> None:
    """Register `train` and `evaluate` on the command of the whole product."""
    app.command("train")(train)
    app.command("evaluate")(evaluate)


def train(
    data: DataArgument,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run; see training/configs.")
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    work: Annotated[
        Path, typer.Option(help="Folder of the run's work; started again on it, a run goes on.")
    ] = Path("runs/train"),
    seed: Annotated[
        int | None, typer.Option(help="Replaces the seed of the configuration.")
    ] = None,
    skip_bad: SkipBadOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train a model on a corpus and publish it in the registry."""
    configure_logging(verbose)
    started = time.monotonic()
    from models.registry import Registry
    from training.config import read_config
    from training.corpus import open_dataset
    from training.pipeline import Run
    from training.pipeline import train as train_run

    overrides = {} if seed is None else {"seed": seed}
    run = Run(read_config(config, overrides), open_dataset(data, skip_bad=skip_bad), work)
    version = train_run(run, Registry(registry))
    manifest = Registry(registry).open(version).manifest
    print(
        f"Version {version} of {str(registry)!r} is trained, in {time.monotonic() - started:.0f} s."
    )
    print(f"{manifest.label_count} labels, default scorer {manifest.default_scorer}.")
    print(f"Digest {manifest.digest}")


def evaluate(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    output: Annotated[
        Path, typer.Option(help="Folder for evaluation.json, evaluation.md and the picture.")
    ] = Path("runs/evaluation"),
    baselines: Annotated[
        bool, typer.Option(help="Measure 30-nearest-neighbour and label-name matching too.")
    ] = True,
    skip_bad: SkipBadOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Measure every scorer of a model on a split: tables, JSON and a picture."""
    configure_logging(verbose)
    from models.parts import read_parts
    from models.predictor import Predictor
    from models.registry import Registry
    from training.assessment import assess
    from training.corpus import open_dataset

    bundle = Registry(registry).open(version)
    parts = read_parts(bundle)
    found = assess(
        Predictor(parts, default_scorer=bundle.manifest.default_scorer),
        open_dataset(data, skip_bad=skip_bad),
        split,
        num_training_documents=bundle.manifest.training_document_count,
        tfidf=parts.sparse.tfidf if baselines else None,
    )
    paths = found.write(output)
    print((paths[0] if as_json else paths[1]).read_text(encoding="utf-8").rstrip())
    if not as_json:
        print("\n" + "\n".join(f"Written: {path}" for path in paths))


def configure_logging(verbose: bool) -> None:
    """Log to stderr; verbose concerns our own packages, not the libraries."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    for name in ("training", "models"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)
