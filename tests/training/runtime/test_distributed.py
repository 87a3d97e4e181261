"""Several processes: what they exchange, against sums by hand; a run of two against one of one."""

import copy
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from longtail.models.bundle.registry import Registry
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import ClassifierConfig
from longtail.training.losses import depl_loss
from longtail.training.neural import loop as stages
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import DeplModel
from longtail.training.neural.steps import retrieval_step
from longtail.training.runtime import distributed
from longtail.training.runtime.distributed import Machine, Processes
from longtail.training.runtime.run_log import progress_path, read_progress


class Together:
    """Collectives of PyTorch for processes that are threads, one at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count, timeout=60)
        self._given: dict[int, Any] = {}
        self.local = threading.local()

    def _exchange(self, value: Any) -> list[Any]:
        self._given[self.local.rank] = value
        self._barrier.wait()
        found = [self._given[rank] for rank in range(self.count)]
        self._barrier.wait()
        return found

    def broadcast_object_list(self, values: list, src: int, device: Any) -> None:
        values[:] = self._exchange(list(values))[src]

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        tensor.copy_(self._exchange(tensor.clone())[src])

    def all_gather(self, places: list[torch.Tensor], tensor: torch.Tensor) -> None:
        for place, value in zip(places, self._exchange(tensor.detach().clone()), strict=True):
            place.copy_(value)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.stack(self._exchange(tensor.clone())).sum(dim=0))


@pytest.fixture
def on_ranks(monkeypatch):
    """Runs a function on so many processes at once and returns what each returned."""

    def run(count: int, function: Callable[[Processes], Any]) -> list[Any]:
        together, found = Together(count), [None] * count
        monkeypatch.setattr(distributed, "dist", together)

        def one(rank: int) -> None:
            together.local.rank = rank
            found[rank] = function(Processes(rank, count))

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    return run


def test_tensors_of_the_first_process_are_copied_by_name_and_in_place(on_ranks):
    def copied(processes: Processes):
        own, number = torch.full((2,), float(processes.rank)), torch.tensor(7 + processes.rank)
        processes.copy_from_first([own])
        made = processes.tensors_from_first(lambda: {"a": torch.arange(3), "b": number.clone()})
        return own.tolist(), {name: tensor.tolist() for name, tensor in made.items()}

    assert on_ranks(2, copied) == [([0.0, 0.0], {"a": [0, 1, 2], "b": 7})] * 2


@pytest.mark.parametrize("sizes", [[2, 2], [3, 1, 2], [0, 2]])
def test_vectors_are_gathered_in_order_and_each_has_its_own_gradient(on_ranks, sizes):
    rows = torch.arange(2.0 * sum(sizes)).view(-1, 2)
    weights = torch.arange(1.0, 1 + rows.numel()).view_as(rows)

    def gather(processes: Processes):
        own = rows.split(sizes)[processes.rank].clone().requires_grad_()
        vectors = processes.gathered(own, sizes)
        (vectors * weights).sum().backward()
        return vectors.detach(), own.grad

    found = on_ranks(len(sizes), gather)
    assert all(torch.equal(vectors, rows) for vectors, _ in found)
    assert torch.equal(torch.cat([gradient for _, gradient in found]), weights)


def test_gradients_of_parts_are_summed_those_of_the_whole_averaged_and_none_stays_none(on_ranks):
    def reduce(processes: Processes):
        shared, alike, unused, elsewhere = (nn.Parameter(torch.zeros(2, 2)) for _ in range(4))
        shared.grad = torch.full((2, 2), 1.0 + processes.rank)
        alike.grad = torch.full((2, 2), 4.0)
        elsewhere.grad = torch.ones(2, 2) if processes.rank == 1 else None
        processes.sum_gradients([shared, unused, elsewhere], [alike])
        return [each.grad for each in (shared, alike, unused, elsewhere)]

    for shared, alike, unused, elsewhere in on_ranks(2, reduce):
        assert shared.tolist() == [[3.0, 3.0]] * 2
        assert alike.tolist() == [[4.0, 4.0]] * 2
        assert unused is None
        assert elsewhere.tolist() == [[1.0, 1.0]] * 2


CONFIG = ClassifierConfig.model_validate(
    {"epochs": 2, "batch_size": 15, "encoder_learning_rate": 1e-3}
)


def without_dropout(model: DeplModel) -> DeplModel:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.fixture
def train_on(on_ranks, new_model, texts, subsets, monkeypatch):
    """Trains a stage without dropout on processes that each have a folder and a model.

    The model of another rank than the first starts with other weights.
    """
    monkeypatch.setattr(stages, "_CHECKPOINT_EVERY_S", 0.0)
    models = [without_dropout(new_model()) for _ in range(2)]

    def train(folder: Path, count: int, break_at: int | None = None) -> list[DeplModel]:
        def one(processes: Processes) -> DeplModel:
            machine, model = (
                Machine("cpu", is_bfloat16=False, processes=processes),
                models[processes.rank],
            )
            model = copy.deepcopy(model)
            if processes.rank:
                nn.init.zeros_(model.encoder.label_pooler.weight)
            inner = retrieval_step(
                model, texts, subsets, machine, loss=depl_loss, keep_classifier=True
            )
            taken = itertools.count()

            def step(rows, rng):
                if next(taken) == break_at:
                    raise KeyboardInterrupt
                return inner(rows, rng)

            stage = Stages(texts, seed=1, machine=machine, folder=folder / str(processes.rank))
            with suppress(KeyboardInterrupt):
                stage.train("classifier", model, step, CONFIG)
            return model

        return on_ranks(count, one)

    return train


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def losses(folder: Path) -> list[float]:
    return [point.loss for point in read_progress(progress_path(folder / "classifier"))]


def test_ranks_learn_what_one_process_learns_from_the_whole_batch(train_on, tmp_path):
    (alone,) = train_on(tmp_path / "one", 1)
    first, second = train_on(tmp_path / "two", 2)
    assert torch.equal(flat(first), flat(second))
    wanted, found = losses(tmp_path / "one" / "0"), losses(tmp_path / "two" / "0")
    assert len(wanted) == 8
    assert found == pytest.approx(wanted, rel=1e-4)
    # Adam turns the last bits of tiny gradients into steps of full size: so few may differ.
    assert ((flat(first) - flat(alone)).abs() > 1e-4).float().mean() < 1e-3
    assert not (tmp_path / "two" / "1").exists()


@pytest.mark.slow
def test_broken_ranks_go_on_from_the_checkpoint_of_the_first(train_on, tmp_path):
    whole = train_on(tmp_path / "whole", 2)
    train_on(tmp_path / "broken", 2, break_at=5)
    resumed = train_on(tmp_path / "broken", 2)
    assert all(torch.equal(flat(a), flat(b)) for a, b in zip(whole, resumed, strict=True))
    again = train_on(tmp_path / "broken", 2, break_at=0)
    assert all(torch.equal(flat(each), flat(whole[0])) for each in again)


@pytest.mark.slow
def test_two_processes_train_what_one_trains_in_two_parts(
    train_in, tiny_content, tiny_corpus, tmp_path
):
    """In float32, with dropout: parts have draws of their own, whoever encodes them."""
    sections = ("classifier", "retrieval")
    content: dict[str, Any] = tiny_content | {"scorers": ["retrieval", "classifier", "sparse"]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
        "-m", "longtail", "train", str(tiny_corpus), "--config", str(tmp_path / "run.yaml"),
        "--work", str(tmp_path / "two" / "work"), "--registry", str(tmp_path / "two" / "registry"),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Digest ") == 1
    for name in sections:
        content[name] = content[name] | {"accumulate": 2}
    one = train_in(tmp_path / "one", TrainingConfig.model_validate(content), tiny_corpus)
    two = tmp_path / "two" / "work"
    for name in sections:
        found = [
            [point.loss for point in read_progress(progress_path(work / name))]
            for work in (one.work, two)
        ]
        assert len(found[0]) == 16
        assert found[1] == pytest.approx(found[0], rel=1e-3)
    metrics = [
        Registry(folder / "registry").open(1).manifest.metrics["dev"]["retrieval"]["all"]["P@5"]
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert metrics[0] == pytest.approx(metrics[1], abs=0.02)
    files = [
        {path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file()}
        for work in (one.work, two)
    ]
    assert files[0] == files[1]
    claims = [json.loads((work / "run.json").read_text()) for work in (one.work, two)]
    assert claims[1]["config"]["classifier"]["accumulate"] == 1
    assert Path(two / "classifier").is_dir()
