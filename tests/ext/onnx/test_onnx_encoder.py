"""Encoders computed by ONNX Runtime answer like the ones that they were made of."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from longtail.ext.onnx import export as onnx_export
from longtail.ext.onnx.transformer import OnnxTransformer, _open
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor

pytestmark = pytest.mark.slow  # exports take half a minute

for name in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(name, reason="needs the extra 'onnx'")

TEXTS = ["Council regulation", "one", "the price of olive oil in the Community " * 20, "a b c d"]


def run_here(command, **options):
    """Do what `subprocess.run` would, in this process, which has loaded the libraries already."""
    onnx_export.main(command[3:])
    return subprocess.CompletedProcess(command, 0)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """What PyTorch makes of the encoder."""
    path = tmp_path_factory.mktemp("exported") / "exact.onnx"
    onnx_export.export(trained.bundle.encoder_folder, path)
    return path


@pytest.fixture
def quantised(trained, exported, monkeypatch):
    """The vectors of the texts in 8 bits; PyTorch exports but once."""
    monkeypatch.setattr(subprocess, "run", run_here)
    monkeypatch.setattr(
        torch.onnx, "export", lambda model, example, path, **options: shutil.copy(exported, path)
    )
    predictor = Predictor.of_bundle(trained.bundle, precision="onnx-int8", num_threads=1)
    assert (predictor.device, predictor.encoder_precision) == ("cpu", "onnx-int8")
    return predictor.read(TEXTS).vectors


@pytest.fixture(scope="module")
def exact(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1).read(TEXTS).vectors


def test_the_graph_has_the_vectors_of_the_encoder_whatever_the_padding(trained, exported, exact):
    parts = read_parts(trained.bundle)
    parts.dense.encoder.transformer = OnnxTransformer(_open(exported, 1))
    found = Predictor(parts, device="cpu").read(TEXTS).vectors
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_vectors_in_8_bits_are_near(quantised, exact):
    cosines = (quantised * exact).sum(axis=1) / np.linalg.norm(quantised, axis=1)
    cosines /= np.linalg.norm(exact, axis=1)
    assert (cosines > 0.98).all() and not np.array_equal(quantised, exact)


def test_a_graph_that_answers_otherwise_is_refused(tmp_path, monkeypatch, trained):
    class Session:
        def __init__(self, *arguments, **options):
            pass

        def run(self, names, given):
            return [np.zeros((*given["input_ids"].shape, 16), dtype=np.float32)]

    monkeypatch.setattr("onnxruntime.InferenceSession", Session)
    model = onnx_export._LastLayer(nn.Identity())
    monkeypatch.setattr(
        onnx_export._LastLayer, "forward", lambda self, ids, mask: torch.ones((*ids.shape, 16))
    )
    with pytest.raises(RuntimeError, match="differ from the encoder's by 1"):
        onnx_export._compare(Path("x"), model, 512)
