"""Texts encoded in parts: the same vectors and gradients in less memory."""

import numpy as np
import pytest
import torch
from torch import nn

from longtail.training.losses import depl_loss
from longtail.training.neural.loop import encoding_in_parts
from longtail.training.neural.model import DeplModel, checkpoint_gradients
from longtail.training.neural.steps import classifier_step, retrieval_step
from longtail.training.runtime.distributed import Machine

CPU = Machine("cpu", is_bfloat16=False)
ROWS = np.arange(16)


@pytest.fixture
def new_still_model(new_model):
    """Makes models without dropout, in training mode, whose classifier has learned something."""

    def make() -> DeplModel:
        model = new_model().train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(1))
        return model

    return make


@pytest.fixture
def steps(texts, subsets):
    """Makes a step for a model: of the classifier, or of the dual encoder with any loss."""

    def make(model: DeplModel, loss=None):
        if loss is None:
            return classifier_step(model, texts, CPU)
        return retrieval_step(model, texts, subsets, CPU, loss=loss, keep_classifier=True)

    return make


def gradients(model: DeplModel, step, num_parts: int, machine: Machine = CPU) -> dict:
    """Return the loss and all gradients of a step."""
    with encoding_in_parts(model, machine, num_parts), machine.autocast():
        loss = step(ROWS, np.random.default_rng(3))
        loss.backward()
    found = {name: value.grad for name, value in model.named_parameters()}
    return {"loss": loss.detach(), **{k: v for k, v in found.items() if v is not None}}


def bytes_kept(model: DeplModel, step, num_parts: int) -> int:
    """Return the size of all tensors that wait for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with (
        encoding_in_parts(model, CPU, num_parts),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        loss = step(ROWS, np.random.default_rng(3))
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    assert loss.requires_grad
    return sum(size for pointer, size in kept.items() if pointer not in parameters)


@pytest.mark.parametrize(
    ("loss", "num_parts"), [(None, 2), (None, 40), (depl_loss, 3), (depl_loss, 5)]
)
def test_in_parts_a_step_has_the_loss_and_the_gradients_of_the_whole(
    new_still_model, steps, loss, num_parts
):
    models = [new_still_model() for _ in range(2)]
    whole, parts = (
        gradients(model, steps(model, loss), count)
        for model, count in zip(models, (1, num_parts), strict=True)
    )
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_with_dropout_parts_are_encoded_twice_with_the_same_draws(new_model, texts):
    model = new_model().train()
    batch, seen = texts.documents.batch(ROWS, 0, "cpu"), []
    dropout = model.encoder.transformer.embeddings.dropout
    dropout.register_forward_hook(lambda *args: seen.append(args[2]))
    with encoding_in_parts(model, CPU, 4):
        torch.manual_seed(3)
        vectors = model.encode(batch, "document")
        after = torch.rand(1)
        vectors.sum().backward()
    assert len(seen) == 8  # the last part first, on the way back
    for first, again in zip(seen[:4], seen[:3:-1], strict=True):
        assert torch.equal(first, again)
    assert not torch.allclose(vectors, model.eval().encoder(batch, "document"))
    torch.manual_seed(3)
    torch.randint(2**62, ())
    assert torch.equal(after, torch.rand(1))


def test_gradient_checkpointing_has_the_same_gradients_in_less_memory(new_still_model, steps):
    models = [new_still_model() for _ in range(2)]
    checkpoint_gradients(models[1].encoder)
    plain, sparing = (gradients(model, steps(model), 1) for model in models)
    assert plain.keys() == sparing.keys()
    for name, value in plain.items():
        torch.testing.assert_close(sparing[name], value, rtol=1e-5, atol=1e-7, msg=name)
    kept = [bytes_kept(model, steps(model), 1) for model in models]
    assert kept[1] < 0.5 * kept[0]
