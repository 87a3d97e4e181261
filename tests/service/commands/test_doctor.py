"""`longtail doctor`: the machine, the precisions, and what it advises."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.encoders.trial import Failure, Trial
from longtail.service.commands.doctor import advice_on

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def without_onnx(monkeypatch):
    """Making a graph of ONNX takes half a minute, and its own tests do it."""
    monkeypatch.setattr("longtail.models.encoders.onnx.find_spec", lambda name: None)


def trial(precision, texts_per_second):
    return Trial(precision, "without padding", 3.0, float(texts_per_second), 0.05)


@pytest.mark.parametrize(
    ("found", "automatic", "said"),
    [
        ([trial("float32", 100), trial("onnx-int8", 119)], "float32", []),
        (
            [trial("float32", 100), trial("onnx-int8", 140)],
            "float32",
            ["onnx-int8 is 1.4 times as fast, with vectors 0.05 of their length away"],
        ),
        (
            [trial("float32", 100), trial("bfloat16", 12.5)],
            "float32",
            ["only imitates bfloat16: it is 8.0 times as slow"],
        ),
        ([trial("float32", 100), trial("bfloat16", 300)], "bfloat16", []),
        ([Failure("float32", "broken")], "float32", []),
    ],
)
def test_a_way_that_is_much_faster_or_slower_is_named(found, automatic, said):
    first, *others = advice_on(found, automatic)
    assert first == f"LONGTAIL_PRECISION=auto takes {automatic} here."
    assert len(others) == len(said)
    for sentence, part in zip(others, said, strict=True):
        assert part in sentence


def test_a_model_of_a_registry_is_tried(trained):
    folder = str(trained.registry.folder)
    result = RUNNER.invoke(longtail.app, ["doctor", "--registry", folder, "--seconds", "0.01"])
    assert result.exit_code == 0
    for part in ("Processor", "Cores", "float32", "bfloat16", "LONGTAIL_PRECISION=auto takes"):
        assert part in result.output


def test_a_program_gets_json(trained):
    words = ["doctor", "--registry", str(trained.registry.folder), "--seconds", "0.01", "--json"]
    found = json.loads(RUNNER.invoke(longtail.app, words).stdout)
    assert found["machine"]["cores"] >= 1
    precisions = [each["precision"] for each in found["precisions"]]
    assert precisions == ["float32", "bfloat16", "onnx-int8"]


def test_without_an_encoder_there_is_nothing_to_try(trained_sparse):
    folder = str(trained_sparse.registry.folder)
    result = RUNNER.invoke(longtail.app, ["doctor", "--registry", folder])
    assert result.exit_code == 0
    assert "This model has no encoder" in result.output
