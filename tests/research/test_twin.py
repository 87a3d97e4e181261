"""The method in 300 lines does on the demo nearly what the product does there."""

import runpy
from pathlib import Path

import pytest

from longtail.training.assessment.assess import assess_bundle
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset

ROOT = Path(__file__).parents[2]
TWIN = ROOT / "docs" / "explanation" / "longtail_in_300_lines.py"
DEMO = ROOT / "training" / "demo_data"
CLOSE = {"sparse": 1.5, "names": 7.5, "blend": 2.0}
"""Points of P@1 and P@5. Measured: the SVMs are 1.3 and 0.9 apart (81.4 and 58.2 of the twin),
names 4.3 and 6.5 (77.1 and 42.5); the twin's blend has 86.9 and 61.0; the product is better."""


def test_the_twin_can_be_read_in_a_quarter_of_an_hour():
    assert len(TWIN.read_text("utf-8").splitlines()) <= 300


@pytest.mark.slow  # half a minute of a core each
def test_the_twin_comes_close_to_the_product_on_the_demo(train_in, tmp_path):
    twin = runpy.run_path(str(TWIN))["main"](DEMO)
    config = TrainingConfig(scorers=("sparse", "names", "ensemble"))
    trained = train_in(tmp_path, config, DEMO)
    found = assess_bundle(trained.bundle, open_dataset(DEMO), "test", baselines=False)
    for name, most in CLOSE.items():
        own = found.evaluation.scorers["ensemble" if name == "blend" else name]["all"].values
        for metric in ("P@1", "P@5"):
            assert twin[name][metric] == pytest.approx(100 * own[metric], abs=most), (name, metric)
    assert twin["blend"]["same as a scan of all"] == 1
    assert twin["blend"]["labels scored"] < 100  # of 2,253
    assert twin["sparse"]["R@10 (0)"] == 0 and twin["blend"]["R@10 (0)"] > 30
