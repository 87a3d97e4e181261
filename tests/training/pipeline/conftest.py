"""Fixtures of whole runs."""

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sentence_encoder(tiny_encoder, tmp_path_factory):
    """The tiny encoder, which says that its texts are compared by the mean of their tokens."""
    folder = Path(shutil.copytree(tiny_encoder, tmp_path_factory.mktemp("sentences") / "encoder"))
    kinds = ("Transformer", "Pooling", "Normalize")
    listed = [
        {"path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder
