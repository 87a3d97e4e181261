"""`import longtail` gives Python users all that they need, and costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

import longtail


def test_the_import_brings_no_library_that_takes_long():
    heavy = ["torch", "numpy", "typer", "fastapi", "sklearn", "transformers", "pydantic", "faiss"]
    code = f"import sys, longtail; print([x for x in {heavy} if x in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert [name for name in longtail.__all__ if getattr(longtail, name, None) is None] == []
    assert longtail.Predictor.__name__ == "Predictor"


def test_an_unknown_name_is_told_with_those_that_there_are():
    with pytest.raises(AttributeError, match=r"no attribute 'fit'; it has .*'train'"):
        _ = longtail.fit


def test_a_model_is_trained_loaded_and_evaluated(tmp_path, tiny_corpus):
    registry = tmp_path / "registry"
    options = {"registry": registry, "work": tmp_path / "work", "scorers": ["sparse"]}
    assert longtail.train(tiny_corpus, **options) == 1
    (prediction,) = longtail.load(registry).predict(["imports of olive oil"], k=3)
    (again,) = longtail.load(registry / "1").predict(["imports of olive oil"], k=3)
    assert prediction == again
    assert len(prediction.labels) == 3
    found = longtail.evaluate(tiny_corpus, registry=registry)
    assert "sparse" in found.rankings


def test_the_command_tells_its_version():
    run = CliRunner().invoke(longtail.app, ["--version"])
    assert (run.exit_code, run.output) == (0, f"longtail {version('longtail')}\n")
