"""Training within a time: what is planned, published, taken over, kept, resumed and refused."""

import logging
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import longtail
from longtail.ext.budget import budget, dense_costs
from longtail.ext.budget.budget import DensePlan, plan_dense, train_within
from longtail.ext.budget.dense_costs import DenseCosts, StageTime, measure_dense_costs
from longtail.ext.budget.extension import seconds_of
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError
from longtail.models.kinds.storage import read_parts
from longtail.training.data.dataset import open_dataset
from longtail.training.neural.batching import BatchPlan
from longtail.training.pipeline.train import Run

SPENT = [SimpleNamespace(stage="features", wall_s=1.0)]
"""What the run without an encoder took: the second takes its features again."""
COSTS = DenseCosts({"classifier": StageTime(8, 1.0), "retrieval": StageTime(8, 2.0)}, other_s=3.0)


@pytest.fixture
def few_steps(monkeypatch):
    """Let a few steps be worth their time, as they are all that the tiny corpus has.

    All seconds are given here, so that no plan depends on the speed of the machine.
    """
    monkeypatch.setattr(budget, "_FEWEST_STEPS", 2)
    monkeypatch.setattr(dense_costs, "measure_dense_costs", lambda *_: COSTS)
    monkeypatch.setattr(budget, "read_stage_costs", lambda _: SPENT)


@pytest.fixture
def start(tiny_config, tiny_corpus, tmp_path, monkeypatch):
    """Return what trains the tiny corpus within a time, at a second for each look at the clock."""
    run = Run(tiny_config, open_dataset(tiny_corpus), tmp_path / "work")
    registry = Registry(tmp_path / "registry")

    # The clock goes by calls: bars that look at it would let it run.
    monkeypatch.setattr(budget, "until", lambda _: nullcontext())

    def trained(seconds: float = 100.0, **changes) -> tuple[int, Registry, list[str]]:
        said: list[str] = []
        clock = map(float, count()).__next__
        version = train_within(replace_run(run, changes), registry, seconds, said.append, clock)
        return version, registry, said

    return trained


def replace_run(run: Run, changes) -> Run:
    fields = ("config", "dataset", "folder", "processes", "is_activated")
    return Run(**({name: getattr(run, name) for name in fields} | changes))


# ---- the option ----


def test_a_time_has_hours_minutes_and_seconds():
    assert [seconds_of(x) for x in ("90s", " 30M", "1h30m", "1h1m1s")] == [90, 1800, 5400, 3661]
    for wrong in ("", "0m", "30", "1d", "1m1h"):
        with pytest.raises(ConfigError, match=f"--budget '{wrong}': expected a time such as 90s"):
            seconds_of(wrong)


@pytest.mark.parametrize(
    ("given", "words"),
    [(["--budget", "soon"], "expected a time"), (["--budget", "1h"], "this run has none")],
)
def test_the_command_refuses_a_budget_that_decides_nothing(tiny_corpus, tmp_path, given, words):
    places = ["--registry", tmp_path / "registry", "--work", tmp_path / "work"]
    words_of = map(str, ["train", tiny_corpus, "--without-encoder", *places, *given])
    assert words in str(CliRunner().invoke(longtail.app, list(words_of)).exception)


# ---- the plan ----

some_times = st.builds(StageTime, st.integers(0, 5000), st.floats(0.001, 10))


@given(some_times, some_times, st.floats(0, 1000), st.floats(0, 1000), st.floats(1, 1e5))
def test_a_plan_is_within_the_time_and_wastes_less_than_a_step_of_each_stage(
    classifier, retrieval, dense_s, other_s, left_s
):
    retrieval = StageTime(retrieval.steps + 1, retrieval.step_s)
    stages = {"classifier": classifier, "retrieval": retrieval}
    plan = plan_dense(DenseCosts(stages, dense_s), other_s, left_s)
    usable = 0.95 * left_s - dense_s - other_s
    whole = classifier.seconds + retrieval.seconds
    if plan is None:
        assert usable * retrieval.steps / whole < 51
    elif plan.max_steps is None:
        assert usable >= whole * (1 - 1e-9)
        assert plan.seconds == pytest.approx(dense_s + other_s + whole)
    else:
        assert plan.max_steps["retrieval"] >= 50
        most_wasted = classifier.step_s + retrieval.step_s
        assert 0.95 * left_s - most_wasted - 1e-6 <= plan.seconds <= 0.95 * left_s + 1e-6


@pytest.mark.parametrize(("left_s", "is_planned"), [(100.0, True), (5.0, False)])
def test_an_encoder_that_is_not_trained_takes_what_its_vectors_take(left_s, is_planned):
    stages = {name: StageTime(0, 0.0) for name in ("classifier", "retrieval")}
    plan = plan_dense(DenseCosts(stages, 4.0), 1.0, left_s)
    assert plan == (DensePlan(None, 5.0) if is_planned else None)


def test_a_stage_without_steps_is_left_out(tiny_config):
    config = DensePlan({"classifier": 0, "retrieval": 7}, 1.0).applied(tiny_config)
    assert (config.classifier.epochs, config.retrieval.max_steps) == (0, 7)
    assert config.sparse == tiny_config.sparse


def test_costs_are_of_the_steps_that_the_run_would_take(tiny_config, tiny_corpus, trained_sparse):
    corpus = open_dataset(tiny_corpus)
    costs = measure_dense_costs(tiny_config, corpus, read_parts(trained_sparse.bundle))
    lengths = corpus.split("train").scan().lengths
    for name in ("classifier", "retrieval"):
        plan = BatchPlan.of(lengths, getattr(tiny_config, name), [0])
        assert costs.stages[name].steps == plan.num_steps
        assert costs.stages[name].step_s > 0
    assert costs.other_s > 0


# ---- both runs ----


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_first_without_an_encoder_then_with_one_for_the_time_that_is_left(
    start, train_in, tiny_config, tiny_corpus, tmp_path
):
    version, registry, said = start()
    without, with_encoder = (registry.open(number).manifest for number in (1, 2))
    assert registry.versions() == [1, 2]
    assert (without.encoder, with_encoder.encoder is None) == (None, False)
    plain = train_in(tmp_path / "plain", tiny_config.without_encoder, tiny_corpus)
    assert without.digest == plain.bundle.manifest.digest
    whole = train_in(tmp_path / "whole", tiny_config, tiny_corpus)
    assert with_encoder.digest == whole.bundle.manifest.digest
    assert version == registry.current()
    assert "Version 1, without an encoder, is published" in said[0]
    assert "in full" in said[1]


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_shorter_time_gives_shorter_stages_and_the_same_again(
    start, train_in, tiny_config, tiny_corpus, tmp_path, monkeypatch
):
    version, registry, said = start(22.0)
    plan = budget._kept_plan(tmp_path / "work" / "plan.json", lambda: None)
    assert plan.max_steps == {"classifier": 4, "retrieval": 4}  # 0.95 * (22 - 2) - 3 - 1 of 24 s
    shorter = train_in(tmp_path / "plain", plan.applied(tiny_config), tiny_corpus)
    assert registry.open(2).manifest.digest == shorter.bundle.manifest.digest
    monkeypatch.setattr(dense_costs, "measure_dense_costs", None)
    monkeypatch.setattr(
        "longtail.training.neural.loop._train_step", None
    )  # nothing is trained again
    monkeypatch.setattr("longtail.training.sparse.svm.SvmProblem.fit", None)
    assert start(22.0)[0] == version
    assert registry.versions() == [1, 2]
    assert "steps of retrieval" in said[1]


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("seconds", [3.0, 9.0])
def test_too_short_a_time_leaves_the_model_without_an_encoder(start, seconds, caplog):
    version, registry, _ = start(seconds)
    assert (version, registry.versions(), registry.current()) == (1, [1], 1)
    assert "too little to train the encoder" in caplog.text
    assert start(seconds)[0] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_worse_model_with_an_encoder_is_published_but_not_the_current_one(
    start, monkeypatch, caplog
):
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(budget, "_on_dev", lambda _, version: 0.5 if version == 1 else 0.25)
    version, registry, _ = start()
    assert (version, registry.versions(), registry.current()) == (1, [1, 2], 1)
    assert "25.00 % on dev, and version 1, without, 50.00 %" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("word", ["without an encoder, is published", "is used in full"])
def test_no_work_begins_or_goes_on_after_the_time_is_over(
    word, tiny_config, tiny_corpus, tmp_path, caplog
):
    now = [0.0]

    def tell(said: str) -> None:
        if word in said:
            now[0] = 1000.0

    run = Run(tiny_config, open_dataset(tiny_corpus), tmp_path / "work")
    registry = Registry(tmp_path / "registry")
    assert train_within(run, registry, 100.0, tell, lambda: now[0]) == 1
    assert registry.versions() == [1]
    assert "too little" in caplog.text or "are over before the encoder's run is" in caplog.text
    now[0] = 0.0
    resumed = train_within(run, registry, 100.0, lambda _: None, lambda: now[0])
    assert (resumed in registry.versions()) and len(registry.versions()) == 1 + ("used" in word)
