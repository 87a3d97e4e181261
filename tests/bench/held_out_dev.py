"""What becomes of the probabilities of `sparse` when it is trained again on all documents.

    python tests/bench/held_out_dev.py training/demo_data <folder of tate> --json held-out-dev.json

Of each corpus some training documents are held out, as in a run on a corpus without a dev split;
one that the corpus has is left alone. The scorer is fitted on the rest and calibrated on them, then
fitted again on all documents. Both are measured on the test split, with the same curve. Seconds are
of CPU time, of each fit with its features.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.manifest import Calibration
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import assess
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.data.survey import survey
from longtail.training.pipeline.dev_split import DevSplit
from longtail.training.pipeline.encoder_free import EncoderFree, fit_encoder_free

CONFIG = TrainingConfig(scorers=("sparse",))
METRICS = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
PERCENT = dict.fromkeys((*METRICS, "ECE, best 5", "mean probability", "precision"), ".2f")
COLUMNS = {"corpus": "", "trained on": ",", "CPU seconds": ".0f", **PERCENT, "log loss": ".2f"}


def main() -> None:
    """Measure each corpus; print the table, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+", help="with training and test documents")
    add_json_option(parser)
    options = begin(parser)
    table = Table(COLUMNS)
    for folder in options.corpora:
        with tempfile.TemporaryDirectory() as work:
            add_rows(table, open_dataset(folder), Path(work))
    keep(options.json, {"test": table}, seeds=[CONFIG.seed])


def add_rows(table: Table, corpus: Dataset, work: Path) -> None:
    """Fit twice, calibrate once, and measure both.

    Raises:
        SystemExit: The corpus is too small.
    """
    view = with_held_out_dev(corpus, CONFIG.held_out_dev)
    if view is None:
        raise SystemExit(f"{corpus.folder}: too small to hold documents out")
    unspaced_share = survey(corpus.split("train"), 0).unspaced_share
    calibrations: Mapping[str, Calibration] = {}
    for documents, suffix in ((view, ""), (corpus, "-all")):
        started = time.process_time()
        found = fit_encoder_free(documents, CONFIG, unspaced_share, work, suffix=suffix)
        seconds = time.process_time() - started
        num_documents = found.truth.shape[0]
        if documents is view:
            parts = ModelParts(found.catalogue, found.sparse, None)
            dev = DevSplit.of(view, parts, num_documents, work / "blending")
            calibrations = dev.blending({}).calibrations
        row = measured(corpus, found, calibrations)
        table.add(corpus.folder.name, num_documents, seconds, *row)


def measured(
    corpus: Dataset, found: EncoderFree, calibrations: Mapping[str, Calibration]
) -> list[float]:
    """Return the cells of a row behind the first three."""
    parts = ModelParts(found.catalogue, found.sparse, None, calibrations=calibrations)
    result = assess(
        Predictor(parts), corpus, "test",
        num_training_documents=found.truth.shape[0], reliability=True,
    )  # fmt: skip
    assert result.reliability is not None
    of = result.reliability.after["sparse"]
    values = result.evaluation.scorers["sparse"]["all"].values
    shares = [*(values[name] for name in METRICS), of.top_calibration_error, of.top_probability]
    return [100 * share for share in (*shares, of.top_precision)] + [of.log_loss]


if __name__ == "__main__":
    main()
