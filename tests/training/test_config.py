"""Run configurations: the defaults, the files that we give, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import ConfigError
from training.config import TrainingConfig, read_config

CONFIGS = Path(__file__).parents[2] / "training" / "configs"


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_no_file_gives_the_defaults():
    assert read_config(None) == TrainingConfig()


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_that_we_give_can_be_read(path):
    assert read_config(path) != TrainingConfig()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path):
    config = read_config(write(tmp_path, "seed: 4\nclassifier:\n  epochs: 7\n"))
    assert (config.seed, config.classifier.epochs) == (4, 7)
    assert config.classifier.batch_size == TrainingConfig().classifier.batch_size
    assert config.retrieval == TrainingConfig().retrieval


def test_overrides_replace_the_keys_of_the_file(tmp_path):
    path = write(tmp_path, "seed: 4\nfrozen_layers: 1\n")
    config = read_config(path, {"seed": 9})
    assert (config.seed, config.frozen_layers) == (9, 1)


def test_a_rate_in_exponent_form_is_a_number(tmp_path):
    path = write(tmp_path, "classifier: {encoder_learning_rate: 1e-4}\n")  # a string to YAML
    assert read_config(path).classifier.encoder_learning_rate == 1e-4


def test_every_wrong_key_and_value_is_named_at_once(tmp_path):
    path = write(
        tmp_path,
        "sed: 1\nretrieval: {batch_size: 0, epoch: 2}\nprecision: float16\n"
        "sparse: {max_document_share: 1.5, lemma_language: English}\n",
    )
    with pytest.raises(ConfigError, match=r"run\.yaml") as caught:
        read_config(path)
    for key in ("sed", "retrieval.batch_size", "retrieval.epoch", "precision"):
        assert f"{key}: " in str(caught.value)
    assert "sparse.max_document_share: " in str(caught.value)
    assert "sparse.lemma_language: " in str(caught.value)


def test_a_refused_value_is_shown(tmp_path):
    with pytest.raises(ConfigError, match=r"seed: .* \(came -1\)"):
        read_config(write(tmp_path, "seed: -1\n"))


def test_a_wrong_override_is_refused():
    with pytest.raises(ConfigError, match="the defaults: seed"):
        read_config(None, {"seed": 2**32})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: [1\n", "can't be read"),
        (b"encoder: \xff\n", "can't be read"),
        ("- seed\n", "wanted 'key: value' lines"),
        ("", "wanted 'key: value' lines, came None"),
        ("1: 2\n", "1: "),
    ],
)
def test_a_file_that_is_no_mapping_of_names_is_refused(tmp_path, content, message):
    with pytest.raises(ConfigError, match=r"run\.yaml") as caught:
        read_config(write(tmp_path, content))
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml: can't be read"):
        read_config(tmp_path / "absent.yaml")


def test_a_configuration_can_not_be_changed():
    config = TrainingConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 1
    with pytest.raises(ValidationError, match="frozen"):
        config.retrieval.epochs = 1
