"""Whole runs on the tiny corpus: the same bytes again, killed and resumed, and what is refused."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from scipy.sparse import csr_array
from transformers import BertConfig, BertModel

from longtail.models.bundle.registry import Registry
from longtail.models.encoders.pretrained import find_encoder
from longtail.models.errors import ConfigError, DataError, RequestError
from longtail.models.kinds.registry import KINDS, without_encoder
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.calibration.ensemble import blending_from_json
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.lexical import fit as name_fit
from longtail.training.pipeline.encoder_start import start_dense
from longtail.training.runtime.run_log import read_progress, read_stage_costs
from research.experiments.adversarial.corrections import TreeCorrection, corrected_scores
from tests.closeness import assert_all_close

# Run with a line of JSON for each run that is to be killed: at which call of which function, and
# the command's arguments. It loads the libraries once and forks, which spares seconds a run.
KILLER = """
import importlib, json, os, signal, sys
import longtail, longtail.training.assessment.assess, longtail.training.calibration.ensemble
import longtail.training.linear.stage, longtail.training.linear.trainer
import longtail.training.neural.loop, longtail.training.pipeline.train
import longtail.training.sparse.fit

def run(module, function, number, arguments):
    longtail.training.neural.loop._CHECKPOINT_EVERY_S = 0.0
    longtail.training.linear.trainer._CHECKPOINT_EVERY_S = 0.0
    longtail.training.sparse.fit._BLOCK_SIZE = 50
    owner = importlib.import_module(module)
    original, calls = getattr(owner, function), []
    def patched(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(owner, function, patched)
    sys.argv = ["longtail", *arguments]
    longtail.main()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # what the command says is no status
        run(**json.loads(line))
        os._exit(0)
    print(-os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""
# The 16 steps of either stage are saved one by one, the last one of a stage without its optimizer.
MOMENTS = {
    "third block of labels": ("longtail.training.sparse.fit", "_save_block", 3),
    "fifth checkpoint": ("longtail.training.runtime.checkpoints", "sync_tree", 5),
    "last checkpoint of the classifier": ("longtail.training.runtime.checkpoints", "sync_tree", 16),
    "step of the retrieval model": ("longtail.training.neural.loop", "_train_step", 21),
    "deletion of the checkpoint before": ("shutil", "rmtree", 64),
    "vectors encoded but not kept": ("longtail.training.neural.document_vectors", "save_arrays", 1),
    "tree fitted but not kept": ("longtail.training.label_tree.fit", "save_arrays", 1),
    "third checkpoint of the linear scorer": ("longtail.training.linear.trainer", "save_states", 3),
    "blending fitted but not kept": (
        "longtail.training.pipeline.dev_split", "write_json_durably", 1,
    ),
    "part fitted but not kept": ("longtail.training.runtime.kept", "write_lines_durably", 1),
    "bundle half written": ("longtail.models.files.durable", "sync_tree", 1),
    "bundle not yet numbered": ("longtail.models.bundle.registry", "open_bundle", 1),
    "bundle not yet in the registry's file": (
        "longtail.models.bundle.registry", "write_json_durably", 1,
    ),
}  # fmt: skip


class Killer:
    """Runs `longtail train` in processes that are killed at a given moment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def train(self, folder: Path, moment: str, arguments: list[str]) -> int:
        """Return the status of the killed process; its registry and work are in the folder."""
        module, function, number = MOMENTS[moment]
        command = ["train", *arguments, *places(folder)]
        order = {"module": module, "function": function, "number": number, "arguments": command}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def places(folder: Path) -> list[str]:
    return ["--registry", str(folder / "registry"), "--work", str(folder / "work")]


@pytest.fixture(scope="module")
def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def killer(environment):
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    command = [sys.executable, "-c", KILLER]
    with subprocess.Popen(
        command, text=True, env=environment, stderr=subprocess.DEVNULL, **pipes
    ) as process:
        yield Killer(process)
        process.stdin.close()


@pytest.fixture(scope="module")
def arguments(tiny_corpus, tiny_config_file):
    return [str(tiny_corpus), "--config", str(tiny_config_file)]


@pytest.fixture
def copied_corpus(tiny_corpus, tmp_path):
    return Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))


def changed(config: TrainingConfig, **sections: Any) -> TrainingConfig:
    content = config.model_dump()
    for name, value in sections.items():
        content[name] = content[name] | value if isinstance(value, dict) else value
    return TrainingConfig.model_validate(content)


def digest_of(trained) -> str:
    return trained.bundle.manifest.digest


def test_a_finished_run_started_again_publishes_no_second_version(
    train_in, tiny_config, tiny_corpus, tmp_path, monkeypatch
):
    first = train_in(tmp_path, tiny_config, tiny_corpus)
    monkeypatch.setattr(
        "longtail.training.neural.loop._train_step", None
    )  # nothing is left to be trained
    monkeypatch.setattr("longtail.training.sparse.svm.SvmProblem.fit", None)
    monkeypatch.setattr("longtail.training.neural.document_vectors.encode_all", None)
    monkeypatch.setattr("longtail.training.label_tree.fit.fit_tree", None)
    monkeypatch.setattr("longtail.training.linear.trainer.LinearTrainer.step", None)
    again = train_in(tmp_path, tiny_config, tiny_corpus)
    assert again.version == first.version == first.registry.current()
    assert first.registry.versions() == [1]


def test_weights_that_the_encoder_lacks_follow_from_the_seed(tiny_config, tiny_encoder, tmp_path):
    shutil.copytree(tiny_encoder, tmp_path, dirs_exist_ok=True)
    without_pooler = BertConfig.from_pretrained(tiny_encoder)
    BertModel(without_pooler, add_pooling_layer=False).save_pretrained(tmp_path)
    config = changed(tiny_config, encoder=str(tmp_path))
    truth = csr_array(np.zeros((1, 20), dtype=np.float32))
    first, second = (start_dense(config, truth).model for _ in range(2))
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("failing", [1, 2])
def test_names_that_one_part_of_the_documents_does_not_teach(
    train_in, tiny_config, copied_corpus, tmp_path, monkeypatch, failing
):
    """A refit on remaining held-out documents, or on all, may fail: the run ends all the same."""
    (copied_corpus / "dev.jsonl").unlink()
    fit, calls = name_fit.fit_name_model, []

    def fit_or_not(*given, **named):
        calls.append(1)
        return None if len(calls) == failing else fit(*given, **named)

    monkeypatch.setattr(name_fit, "fit_name_model", fit_or_not)
    config = changed(tiny_config, scorers=["sparse", "names", "ensemble"], held_out_dev=0.5)
    bundle = train_in(tmp_path, config, copied_corpus).bundle
    scorers = ("sparse", "ensemble") if failing == 1 else ("sparse", "names", "ensemble")
    assert bundle.manifest.scorers == Predictor.of_bundle(bundle).scorers.names == scorers
    assert set(bundle.manifest.metrics["dev"]) == set(scorers)
    assert len(calls) == failing  # what was not learned first is not tried again


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_leaves_no_half_bundle_and_goes_on_to_the_same_digest(
    killer, trained, train_in, tiny_config, tiny_corpus, arguments, tmp_path, moment
):
    assert killer.train(tmp_path, moment, arguments) == -SIGKILL
    registry = Registry(tmp_path / "registry")
    for version in registry.versions():
        registry.open(version)
    resumed = train_in(tmp_path, tiny_config, tiny_corpus)
    assert digest_of(resumed) == digest_of(trained)
    assert registry.versions() == [registry.current()] == [1]


@pytest.mark.slow
def test_a_killed_run_with_every_option_goes_on_to_the_same_digest(
    killer, train_in, tiny_content, tiny_corpus, tmp_path
):
    options = {"batch_tokens": 150, "accumulate": 2}
    content = tiny_content | {"scorers": ["retrieval", "sparse"], "gradient_checkpointing": True}
    for stage in ("classifier", "retrieval"):
        content[stage] = tiny_content[stage] | options
    config = TrainingConfig.model_validate(content)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    whole = train_in(tmp_path / "whole", config, tiny_corpus)
    command = [str(tiny_corpus), "--config", str(tmp_path / "run.yaml")]
    assert killer.train(tmp_path / "killed", "fifth checkpoint", command) == -SIGKILL
    resumed = train_in(tmp_path / "killed", config, tiny_corpus)
    assert digest_of(resumed) == digest_of(whole)
    told = whole.bundle.manifest.training
    assert told["retrieval"].items() >= options.items()
    assert told["gradient_checkpointing"] is True


def losses_in(work: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the steps and losses that a run wrote down, by file."""
    return {
        path.name: [(point.step, point.loss) for point in read_progress(path)]
        for path in sorted(work.rglob("*.progress.jsonl"))
    }


def test_a_run_writes_down_its_losses_and_what_its_stages_took(trained):
    losses = losses_in(trained.work)
    assert set(losses) == {f"{x}.progress.jsonl" for x in ("classifier", "retrieval", "steps")}
    assert [step for step, _ in losses["classifier.progress.jsonl"]] == list(range(1, 17))
    costs = {cost.stage: cost for cost in read_stage_costs(trained.work)}
    assert {"features", "sparse", "classifier", "retrieval", "linear", "bundle"} <= set(costs)
    assert all(cost.is_done and cost.peak_rss_bytes > 0 for cost in costs.values())


class ClaimedError(Exception):
    """A run has its folder; the tests need no more of it."""


@pytest.fixture
def folder_of(train_in, monkeypatch, tmp_path):
    """Begin a run in the folder `tmp_path`; return the folder that it works in."""
    folders = []

    def claim(path, *_):
        folders.append(path.parent)
        raise ClaimedError

    def begin(config, corpus):
        with monkeypatch.context() as patch:
            patch.setattr("longtail.training.pipeline.train.claim", claim)
            with pytest.raises(ClaimedError):
                train_in(tmp_path, config, corpus)
        return folders[-1]

    return begin


def test_another_configuration_works_in_a_folder_of_its_own_and_resumes_there(
    trained, folder_of, tiny_config, tiny_corpus, tmp_path, caplog
):
    work = shutil.copytree(trained.work, tmp_path / "work")
    assert folder_of(tiny_config, tiny_corpus) == work
    other = folder_of(changed(tiny_config, seed=4), tiny_corpus)
    assert other.parent == work and "another run (its config differs)" in caplog.text
    assert folder_of(changed(tiny_config, seed=4), tiny_corpus) == other


def test_the_manifest_tells_how_the_bundle_was_made(trained, tiny_config, tiny_corpus):
    manifest, dataset = trained.bundle.manifest, open_dataset(tiny_corpus)
    told = tiny_config.settings_used | {"encoder": Path(tiny_config.encoder).name}
    told["scorer_settings"] = {"word_vectors": {"dim": 128, "epochs": 4}}  # the defaults
    told["retrieval"] = told["retrieval"] | {"label_pooling": "mean"}  # as the encoder has it
    told["remove_markup"] = False  # no text has some
    told["languages"] = ["en"]
    told["sparse"] = told["sparse"] | {"cost": 1.0}  # dev has too few documents to choose another
    assert manifest.training == told
    assert manifest.data_fingerprint == dataset.fingerprint
    assert (manifest.label_count, manifest.training_document_count) == (len(dataset.catalogue), 60)
    assert manifest.encoder.sha256 == find_encoder(tiny_config.encoder).sha256


def test_the_default_scorer_is_a_blend_or_better_than_it_beyond_chance(trained):
    manifest = trained.bundle.manifest
    names = ("retrieval", "classifier", "hybrid", "linear", "dense_neighbours", "sparse")
    names += ("names", "neighbours", "word_vectors", "word_neighbours", "fast", "ensemble")
    assert manifest.scorers == names and set(manifest.metrics["dev"]) == set(names)
    assert manifest.default_scorer in names
    assert "nDCG@5 on dev" in manifest.default_scorer_reason
    assert manifest.default_scorer in manifest.default_scorer_reason


def test_only_trained_labels_have_rows_in_sparse_and_classifier(trained):
    bundle = trained.bundle
    covered = np.flatnonzero(bundle.catalogue.training_counts).tolist()
    for name in ("classifier.safetensors", "linear.safetensors", "sparse.safetensors"):
        assert bundle.tensors(name)["labels"].tolist() == covered
    vectors = bundle.tensors("retrieval.safetensors")["label_vectors"]
    assert vectors.shape == (len(bundle.catalogue), 16)


def test_a_corpus_without_dev_is_trained_and_says_that_nothing_is_chosen(
    train_in, tiny_config, copied_corpus, tmp_path, caplog
):
    (copied_corpus / "dev.jsonl").unlink()
    with caplog.at_level(logging.WARNING, "longtail.training.pipeline.train"):
        manifest = train_in(tmp_path, tiny_config, copied_corpus).bundle.manifest
    assert (manifest.metrics, manifest.default_scorer) == ({}, "retrieval")
    assert manifest.scorers == (
        "retrieval", "classifier", "hybrid", "linear", "dense_neighbours", "sparse", "names",
        "neighbours", "word_vectors", "word_neighbours",
    )  # fmt: skip
    assert (manifest.calibrations, manifest.blends) == ({}, {})
    assert "no dev split: no probabilities are calibrated, there is no ensemble" in caplog.text
    assert "and the default scorer is not chosen" in caplog.text


def test_the_ensembles_weights_and_every_calibration_are_published(trained):
    manifest = trained.bundle.manifest
    assert set(manifest.calibrations) == set(manifest.scorers)
    assert set(manifest.blends) == {"ensemble", "fast"}
    for name, candidates in (("ensemble", KINDS), ("fast", without_encoder())):
        members = list(manifest.blends[name].weights)
        assert members == sorted(members) and set(members) <= set(candidates)
    kept = blending_from_json((trained.work / "blending" / "blending.json").read_text())
    assert kept.blends == manifest.blends


def test_all_scorers_of_a_published_bundle_give_probabilities(trained):
    predictor = Predictor.of_bundle(trained.bundle, device="cpu")
    for scorer in predictor.scorers.names:
        (found,) = predictor.predict(["fish and the sea"], scorer=scorer)
        by_count: dict[int, list[float]] = {}
        for label in found.labels:
            count = trained.bundle.catalogue[label.index].training_count
            by_count.setdefault(count, []).append(label.probability)
        for probabilities in by_count.values():  # of labels seen equally often they fall
            assert all(0 < each < 1 for each in probabilities)
            assert probabilities == sorted(probabilities, reverse=True)


def test_the_linear_scorer_is_published_with_its_tree(trained, tiny_corpus):
    bundle = trained.bundle
    assert bundle.manifest.linear_correction == "tree"
    predictor = Predictor.of_bundle(bundle, device="cpu")
    texts = list(open_dataset(tiny_corpus).split("dev").texts())
    batch, num_labels = predictor.read(texts), len(bundle.catalogue)
    linear = read_parts(bundle).models["linear"]
    model, correction = linear.model, TreeCorrection(linear.tree)
    wanted = corrected_scores(model, torch.from_numpy(batch.vectors), correction).numpy()
    found = predictor.rank(batch, RankingOptions(num_labels, "linear"))
    best = model.labels[np.argsort(-wanted, axis=1, kind="stable")[:, 0]]
    assert found.labels[:, 0].tolist() == best.tolist()
    assert_all_close(found.scores[:, 0], wanted.max(axis=1), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "correction"), [("frequency", "prior"), ("uniform", "none")])
def test_other_negatives_are_published_with_their_correction(
    trained, train_in, tiny_config, tiny_corpus, tmp_path, kind, correction
):
    negatives = tiny_config.linear.negatives.model_dump() | {"distribution": {"kind": kind}}
    linear = tiny_config.linear.model_dump() | {"negatives": negatives}
    for stage in ("sparse", "classifier", "retrieval"):  # what negatives have no part in
        shutil.copytree(trained.work / stage, tmp_path / "work" / stage)
    bundle = train_in(tmp_path, changed(tiny_config, linear=linear), tiny_corpus).bundle
    assert bundle.manifest.linear_correction == correction
    assert read_parts(bundle).models["linear"].tree is None
    predictor = Predictor.of_bundle(bundle, device="cpu")
    (found,) = predictor.predict(["fish and the sea"], scorer="linear")
    assert (found.correction, len(found.labels)) == (correction, 5)
    with pytest.raises(RequestError, match="'tree' and scorer 'linear', which was not"):
        predictor.predict(["fish"], scorer="linear", correction="tree")


def test_without_an_encoder_the_same_sparse_model_is_published(trained, trained_sparse):
    name = "sparse.safetensors"
    files = trained_sparse.bundle.manifest.files
    assert files[name] == trained.bundle.manifest.files[name]
    told = {"trained_on.json", "trained_on.safetensors"}
    on_dev = {"label_counts.json", "label_figures.json"}
    assert set(files) == {"labels.jsonl", "sparse.json", "probes.jsonl", name} | on_dev | told
    assert list(trained_sparse.bundle.catalogue) == list(trained.bundle.catalogue)


def test_broken_lines_of_all_splits_are_told_before_anything_is_trained(
    train_in, tiny_config, copied_corpus, tmp_path
):
    for name in ("train", "dev", "test"):
        with (copied_corpus / f"{name}.jsonl").open("a") as file:
            file.write("{\n")
    with pytest.raises(DataError, match="3 lines can't be used") as caught:
        train_in(tmp_path, tiny_config, copied_corpus)
    for place in ("train.jsonl, line 61", "dev.jsonl, line 21", "test.jsonl, line 21"):
        assert f"{place}: not JSON" in str(caught.value)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    "sections", [{"document_max_tokens": 65}, {"descriptions": {"max_tokens": 65}}]
)
def test_more_tokens_than_the_encoder_reads_are_refused(
    train_in, tiny_config, tiny_corpus, tmp_path, sections
):
    with pytest.raises(ConfigError, match=r"max_tokens is 65, but encoder .* at most 64 tokens"):
        train_in(tmp_path, changed(tiny_config, **sections), tiny_corpus)
