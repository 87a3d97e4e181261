"""Run configurations: the defaults, the files that we give, and what is refused."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from longtail.models.errors import ConfigError
from longtail.training.configuration.learning import LearningConfig
from longtail.training.configuration.run import TrainingConfig, read_config

CONFIGS = Path(__file__).parents[3] / "training" / "configs"


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_that_we_give_can_be_read(path):
    assert read_config(path) != TrainingConfig()


def test_the_name_of_a_configuration_that_we_give_is_enough(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_config(Path("full")) == read_config(CONFIGS / "full.yaml")
    assert read_config(Path("full")).is_tuned
    Path("full").write_text("seed: 4\n")  # a file that is there is meant
    assert read_config(Path("full")) == TrainingConfig(seed=4)
    with pytest.raises(ConfigError, match="can't be read"):
        read_config(Path("fuller"))


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path):
    config = read_config(write(tmp_path, "seed: 4\nclassifier:\n  epochs: 7\n"))
    assert (config.seed, config.classifier.epochs) == (4, 7)
    assert config.classifier.batch_size == TrainingConfig().classifier.batch_size
    assert config.retrieval == TrainingConfig().retrieval


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("cheap", "sparse.cost: got 'cheap'; expected a number or 'auto'"),
        ("-1", "sparse.cost: got -1; expected more than 0 or 'auto'"),
    ],
)
def test_a_value_of_neither_type_is_told_once(tmp_path, value, message):
    path = tmp_path / "c.yaml"
    path.write_text(f"sparse:\n  cost: {value}\n")
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).endswith(message)


def test_every_wrong_key_and_value_is_named_at_once(tmp_path):
    path = write(
        tmp_path,
        "sed: 1\nretrieval: {batch_size: 0, epoch: 2}\nprecision: float8\n"
        "languages: [English]\nsparse: {max_document_share: 1.5}\n",
    )
    with pytest.raises(ConfigError, match=r"run\.yaml") as caught:
        read_config(path)
    for key in ("sed", "retrieval.batch_size", "retrieval.epoch", "precision"):
        assert f"{key}: " in str(caught.value)
    assert "sparse.max_document_share: " in str(caught.value)
    assert "languages: " in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": {"kind": "depl"}}, "loss 'depl' is taken over the batch's label subset; drop"),
        ({"num_negatives": 8}, "num_negatives is 8, but a step encodes 8 labels"),
        ({"weighting": None}, "loss 'softmax' needs weighting"),
        ({"distribution": {"kind": "hard"}, "shared": False}, "but hard_negatives is 0"),
        (
            {"loss": {"kind": "decoupled", "part": "cosine_contrastive"}},
            "'cosine_contrastive' wants cosines",
        ),
        ({"loss": {"kind": "ordered"}}, "drop weighting 'tail'"),
    ],
)
def test_impossible_negatives_of_the_dual_encoder_are_refused(change, message):
    negatives = {
        "distribution": {"kind": "uniform"},
        "weighting": "tail",
        "num_negatives": 4,
        "shared": True,
    } | change
    section = {
        "loss": negatives.pop("loss", {"kind": "softmax"}),
        "negatives": negatives,
        "label_subset_size": 8,
        "hard_negatives": 0,
    }
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_config(None, {"retrieval": section})


@pytest.mark.parametrize(
    ("scorers", "message"),
    [
        ([], "'sparse' is missing; descriptions and hard negatives come from it"),
        (["classifier", "sparse"], "'classifier' without 'retrieval'; add it, or leave both out"),
        (["sparse", "sparse"], "a scorer is named twice"),
        (
            ["sparse", "dense"],
            "scorers: got 'dense', expected some of retrieval, classifier, hybrid, linear, ",
        ),
        ("sparse", "scorers: got 'sparse'; expected a list"),
    ],
)
def test_scorers_that_do_not_go_together_are_refused(scorers, message):
    with pytest.raises(ConfigError, match=message):
        read_config(None, {"scorers": scorers})


def test_ignored_keys_are_those_that_were_given():
    content = {
        "scorers": ["sparse"], "seed": 3, "encoder": "x", "retrieval": {"epochs": 9},
        "descriptions": {"num_keywords": 3}, "sparse": {"cost": 2.0},
    }  # fmt: skip
    config = TrainingConfig.model_validate(content)
    assert config.keys_ignored == ["encoder", "retrieval"]
    dense = TrainingConfig.model_validate(content | {"scorers": ["sparse", "retrieval"]})
    assert dense.keys_ignored == []
    assert dense.without_encoder.keys_ignored == []  # that there is none is no setting in vain


SAMPLED = {"distribution": {"kind": "uniform"}, "weighting": "importance", "num_negatives": 8}
SUBSET = {"distribution": {"kind": "uniform_subset"}, "num_negatives": 8}


def read(negatives=None, **loss) -> LearningConfig:
    content = {"negatives": negatives, "loss": loss} if loss else {"negatives": negatives}
    return LearningConfig.model_validate(content)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (
            {"distribution": {"kind": "within_batch"}, "weighting": "constant", "num_negatives": 9},
            {"kind": "softmax"},
            "num_negatives is 9, but distribution 'within_batch' settles how many",
        ),
        (
            {"distribution": {"kind": "all"}, "weighting": "importance", "exclude": "none"},
            {"kind": "softmax"},
            "would count each positive twice",
        ),
        (SAMPLED | {"weighting": None}, {"kind": "ordered"}, "got distribution 'uniform'"),
        (SUBSET | {"exclude": "none"}, {"kind": "ordered"}, "the positive among the negatives"),
        (
            SUBSET,
            {"kind": "ordered", "rank_weights": [2, 1, 3]},
            "rank_weights increase: 1.0 at rank 2, then 3.0",
        ),
    ],
)
def test_impossible_combinations_are_refused_by_name(negatives, loss, message):
    with pytest.raises(ValidationError) as refusal:
        read(negatives, **loss)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (
            SAMPLED, {"kind": "softmax"},
            "num_negatives is 8, but distribution 'uniform' has 6 labels",
        ),
        (
            {
                "distribution": {"kind": "hard", "share": 1}, "weighting": "constant",
                "num_negatives": 4,
            },
            {"kind": "softmax"}, "num_negatives is 4, but distribution 'hard' has 3 labels",
        ),
        (
            {"distribution": {"kind": "all"}}, {"kind": "ordered", "rank_weights": 7},
            "rank_weights has 7 ranks, but a pair has at most 6 negatives",
        ),
    ],
)  # fmt: skip
def test_what_so_few_labels_make_impossible_is_refused(negatives, loss, message):
    config = read(negatives, **loss)
    with pytest.raises(ConfigError, match=message):
        config.check(num_labels=7, num_hard=3)
