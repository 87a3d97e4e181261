"""The trainer of linear scorers against a dense one that differentiates, and resumed runs."""

import copy
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longtail.models.errors import DataError
from longtail.training.label_tree.fit import fit_tree
from longtail.training.linear import trainer as linear
from longtail.training.linear.trainer import AdagradRows, LinearOptions, LinearTrainer, train_linear
from longtail.training.runtime.checkpoints import is_done
from research.experiments.adversarial.methods import MethodName, make_method

N, DIM, L = 60, 5, 12
METHODS = get_args(MethodName)


def corpus(num_labels: int = L) -> tuple[np.ndarray, csr_array]:
    """Documents near a centre of their first label, some with a second one."""
    rng = np.random.default_rng(0)
    first = np.arange(N) % L
    second = rng.permutation(N)[: N // 3]
    rows = np.concatenate([np.arange(N), second])
    columns = np.concatenate([first, (first[second] + 1) % L])
    truth = csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), (N, num_labels))
    vectors = rng.standard_normal((L, DIM))[first] + 0.2 * rng.standard_normal((N, DIM))
    return vectors.astype(np.float32), truth


VECTORS, TRUTH = corpus()
TREE = fit_tree(VECTORS, TRUTH, num_components=3, regulariser=1.0).tree


def method_of(name: str, num_negatives: int = 2):
    has_regulariser = name in METHODS[:4]
    return make_method(
        name,
        VECTORS,
        TRUTH,
        num_negatives=1 if name == "softmax" else num_negatives,
        regulariser=0.01 if has_regulariser else 0.0,
        tree=TREE,
    )


def trainer_of(name: str, **options) -> LinearTrainer:
    method = method_of(name)
    options = {"learning_rate": 0.05, "batch_size": 16, "epochs": 3, **options}
    return LinearTrainer(
        VECTORS, TRUTH, method.objective, LinearOptions(exclude=method.exclude, **options)
    )


class DenseTwin:
    """Trains float64 weights of all labels beside, by automatic differentiation of the loss."""

    def __init__(self, objective, prior_share: float) -> None:
        self.objective, self.twin = objective, copy.deepcopy(objective)
        self.weight = torch.zeros(L, DIM, dtype=torch.float64, requires_grad=True)
        self.bias = torch.zeros(L, dtype=torch.float64, requires_grad=True)
        self.optimizer = torch.optim.Adagrad(
            [self.weight, self.bias], lr=0.05, initial_accumulator_value=1e-8, eps=0
        )
        self.prior_share = prior_share

    def __call__(self, pairs, score, generator):
        same_draws = generator.clone_state()
        scored = torch.zeros(L, dtype=torch.bool)

        def dense(labels):
            scored[labels.flatten()] = True
            everything = pairs.vectors.double() @ self.weight.T + self.bias
            return everything.gather(1, labels.expand(len(pairs.labels), -1))

        self.optimizer.zero_grad()
        num_pairs = len(pairs.labels)
        (num_pairs * self.twin(pairs, dense, same_draws)).backward()
        for parameter in (self.weight, self.bias):
            parameter.grad[scored] += num_pairs * self.prior_share * parameter.detach()[scored]
        self.optimizer.step()
        return self.objective(pairs, score, generator)


@pytest.mark.parametrize("prior_variance", [None, 0.5])
@pytest.mark.parametrize("name", METHODS)
def test_sparse_steps_are_those_of_automatic_differentiation_of_the_dense_loss(
    name, prior_variance
):
    method = method_of(name)
    twin = DenseTwin(method.objective, 1 / (TRUTH.nnz * prior_variance) if prior_variance else 0.0)
    options = LinearOptions(0.05, 16, 2, exclude=method.exclude, prior_variance=prior_variance)
    trainer = LinearTrainer(VECTORS, TRUTH, twin, options)
    for _ in range(trainer.num_steps):
        trainer.step()
    model = trainer.model()
    assert np.abs(model.weight).max() > 0.05
    # Where a gradient is 0, Adagrad makes up to 1/100 of a step of its rounding errors.
    np.testing.assert_allclose(model.weight, twin.weight.detach(), atol=5e-4)
    np.testing.assert_allclose(model.bias, twin.bias.detach(), atol=5e-4)


def test_an_epoch_has_every_pair_once():
    seen = []
    method = method_of("uniform")

    def objective(pairs, score, generator):
        seen.extend(zip(pairs.documents.tolist(), pairs.labels.tolist(), strict=True))
        return method.objective(pairs, score, generator)

    trainer = LinearTrainer(VECTORS, TRUTH, objective, LinearOptions(batch_size=16, epochs=2))
    for _ in range(trainer.num_steps):
        trainer.step()
    pairs = sorted(zip(*TRUTH.nonzero(), strict=True))
    assert sorted(seen[: TRUTH.nnz]) == sorted(seen[TRUTH.nnz :]) == pairs
    assert seen[: TRUTH.nnz] != seen[TRUTH.nnz :]


@pytest.mark.parametrize("name", ["adversarial", "augment_and_reduce", "softmax"])
def test_a_resumed_run_equals_an_unbroken_one_to_the_bit(tmp_path, name):
    unbroken, first, second = (trainer_of(name) for _ in range(3))
    while unbroken.steps_done < unbroken.num_steps:
        unbroken.step()
    for _ in range(7):  # in the second epoch
        first.step()
    first.save(tmp_path)
    second.load(tmp_path)
    assert second.steps_done == 7
    while second.steps_done < second.num_steps:
        second.step()
    assert np.array_equal(second.model().weight, unbroken.model().weight)
    assert np.array_equal(second.model().bias, unbroken.model().bias)


@pytest.mark.parametrize("name", ["adversarial", "uniform", "frequency", "nce"])
@pytest.mark.parametrize("num_labels", [1, 2])
def test_one_or_two_labels_can_be_trained_and_a_model_stays_as_it_was(name, num_labels):
    rows = np.arange(N)
    truth = csr_array((np.ones(N, dtype=np.float32), (rows, rows % num_labels)), (N, num_labels))
    tree = fit_tree(VECTORS, truth, num_components=2, regulariser=1.0).tree
    method = make_method(name, VECTORS, truth, regulariser=0.01, tree=tree)
    trainer = LinearTrainer(VECTORS, truth, method.objective, LinearOptions(batch_size=16))
    trainer.step()
    model = trainer.model()
    before = model.weight.copy()
    trainer.step()
    assert np.array_equal(model.weight, before)
    assert not np.array_equal(trainer.model().weight, before)


def train(folder, objective=None):
    method = method_of("adversarial")
    options = LinearOptions(0.05, 16, 3)
    return train_linear(VECTORS, TRUTH, objective or method.objective, options, folder)


def test_training_that_was_stopped_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(linear, "_CHECKPOINT_EVERY_S", 0.0)
    method, calls = method_of("adversarial"), []

    def stops(pairs, score, generator):
        calls.append(len(pairs.labels))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return method.objective(pairs, score, generator)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, stops)
    assert not is_done(tmp_path)
    resumed = train(tmp_path)
    assert is_done(tmp_path)
    assert np.array_equal(resumed.weight, train(None).weight)
    assert np.array_equal(train(tmp_path).weight, resumed.weight)  # done: only read


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor that an operation makes, apart from given ones."""

    def __init__(self, apart: list[torch.Tensor]) -> None:
        super().__init__()
        self.apart = {tensor.data_ptr() for tensor in apart}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in self.apart:
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("name", ["uniform", "frequency", "one_versus_each", "augment_and_reduce"])
def test_a_step_makes_nothing_that_grows_with_the_number_of_labels(name):
    largest = []
    for num_labels in (20_000, 80_000):
        vectors, truth = corpus(num_labels)
        method = make_method(name, vectors, truth, num_negatives=2)
        options = LinearOptions(batch_size=16, exclude=method.exclude)
        trainer = LinearTrainer(vectors, truth, method.objective, options)
        state = trainer._state()
        with LargestResult(list(state.values())) as results:
            trainer.step()
        largest.append(results.largest)
        assert state["values"].shape == state["squares"].shape == (num_labels, DIM + 1)
    assert largest[0] == largest[1] <= 16 * 3 * (DIM + 1)


def test_a_vector_that_is_not_finite_is_refused(monkeypatch):
    monkeypatch.setattr(linear, "_ROWS_AT_A_TIME", 7)
    broken = VECTORS.copy()
    broken[23, 1] = np.nan
    with pytest.raises(DataError, match="vector of document 23 is not finite"):
        LinearTrainer(broken, TRUTH, method_of("uniform").objective, LinearOptions())


RATE = 0.1


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_steps_are_those_of_adagrad_on_the_whole_matrix():
    rows = AdagradRows.zeros((6, 3), "cpu")
    whole = torch.zeros(6, 3, requires_grad=True)
    optimizer = torch.optim.Adagrad([whole], lr=RATE, initial_accumulator_value=1e-8, eps=0)
    for number, changed in enumerate(([0, 2], [2, 5], [2], [5, 1])):
        gradient = random(len(changed), 3, seed=number)
        rows.step(torch.tensor(changed), gradient, RATE)
        whole.grad = torch.zeros(6, 3).index_copy(0, torch.tensor(changed), gradient)
        optimizer.step()
    assert torch.allclose(rows.values, whole.detach(), atol=1e-7)
    assert not rows.values[[3, 4]].any()


def test_other_rows_are_not_touched():
    rows = AdagradRows(*(random(5, 4, seed=s).abs() for s in (0, 1)))
    before = [x.clone() for x in (rows.values, rows.squares)]
    rows.step(torch.tensor([1]), random(1, 4), RATE)
    for old, new in zip(before, (rows.values, rows.squares), strict=True):
        assert torch.equal(old[[0, 2, 3, 4]], new[[0, 2, 3, 4]])
        assert (old[1] != new[1]).any()
