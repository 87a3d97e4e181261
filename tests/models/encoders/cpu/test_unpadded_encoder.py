"""BERT without padding is as near to float32 as the encoder itself, whatever the batch."""

import copy
import importlib.util
import inspect
import logging
import sys
from contextlib import contextmanager, nullcontext
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import gelu, linear
from transformers import AutoModel, BertConfig, DistilBertConfig, RobertaConfig, XLMRobertaConfig

from longtail.models.encoders.cpu import backend, torch_internals
from longtail.models.encoders.cpu import unpadded as unpadded_encoder
from longtail.models.encoders.cpu.backend import choose_backend
from longtail.models.encoders.cpu.torch_internals import can_pack
from longtail.models.encoders.cpu.unpadded import UnpaddedBert
from longtail.models.errors import ConfigError

HAS_BFLOAT16 = can_pack(torch.bfloat16)
FORWARD = "longtail.models.encoders.cpu.unpadded_forward"
SIZES = {"vocab_size": 120, "num_hidden_layers": 3, "num_attention_heads": 2}
SMALL = {**SIZES, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 310}
CONFIGS = [BertConfig(**SMALL), RobertaConfig(**SMALL), XLMRobertaConfig(**SMALL)]


def encoder_of(config, seed=0):
    torch.manual_seed(seed)
    transformer = AutoModel.from_config(config).eval()
    for parameter in transformer.parameters():  # biases and norms start as zeros and ones
        parameter.data += 0.05 * torch.randn_like(parameter)
    return transformer.bfloat16()


def product(inputs, weight, bias, activation, *_):
    """What oneDNN's product does: a rounding at its end alone."""
    found = linear(inputs.float(), weight.float(), bias.float())
    return (gelu(found) if activation == "gelu" else found).to(inputs.dtype)


@contextmanager
def imitated():
    """The same pass in Python, with PyTorch's products in place of oneDNN's for bfloat16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_internals, "compiled", inspect.unwrap)
        spec = importlib.util.find_spec(FORWARD)
        forward = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(forward)
        patch.setitem(sys.modules, FORWARD, forward)
        patch.setattr(torch.ops.mkldnn, "_linear_pointwise", product)
        patch.setattr(unpadded_encoder, "packed", torch.clone)
        patch.setattr(backend, "can_pack", lambda dtype: True)
        yield


@pytest.fixture(autouse=True, scope="module")
def _on_any_processor():
    with nullcontext() if HAS_BFLOAT16 else imitated():
        yield


@cache
def unpadded_bert():
    return UnpaddedBert(encoder_of(CONFIGS[0]))


def batch_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(3, 100, (len(lengths), max(lengths))))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": torch.where(mask.bool(), ids, 1), "attention_mask": mask}


def exact_of(transformer):
    return copy.deepcopy(transformer).float()


def distance(found, wanted):
    return ((found.float() - wanted).norm() / wanted.norm()).item()


LENGTHS = [
    [1], [2], [16], [17], [300], [5, 5], [9, 30, 2], [40, 1, 1, 1], [3, 64, 8, 8, 70],
    [7] * 9, list(range(1, 40)), [255, 1], [256], [257, 3, 3], [64] * 5,
]  # fmt: skip


@pytest.mark.parametrize("processor", [nullcontext, imitated])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_it_is_as_near_to_float32_as_the_encoder(config, processor):
    transformer = encoder_of(config)
    own, found, first = [], [], []
    with torch.inference_mode(), processor():
        exact, unpadded = exact_of(transformer), UnpaddedBert(transformer)
        for lengths in LENGTHS:
            batch = batch_of(lengths)
            is_token = batch["attention_mask"].bool()
            wanted = exact(**batch).last_hidden_state
            own.append(distance(transformer(**batch).last_hidden_state[is_token], wanted[is_token]))
            states = unpadded(**batch).last_hidden_state
            assert states.shape == wanted.shape
            assert not states[~is_token].any()
            found.append(distance(states[is_token], wanted[is_token]))
            first.append(distance(unpadded.first_states(**batch), wanted[:, 0]))
    assert 0 < np.mean(found) < 1.2 * np.mean(own)
    assert max(*found, *first) < 2 * max(own)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(0, 9))
def test_the_other_texts_of_a_batch_make_no_difference(lengths, seed):
    """But for roundings; a wrong row would be as far off as another text."""
    batch = batch_of(lengths, seed)
    together = unpadded_bert().first_states(**batch)
    alone = torch.cat([
        unpadded_bert().first_states(
            input_ids=batch["input_ids"][i : i + 1, :length],
            attention_mask=batch["attention_mask"][i : i + 1, :length],
        )
        for i, length in enumerate(lengths)
    ])  # fmt: skip
    assert distance(together, alone.float()) < 0.03
    others = torch.roll(alone.float(), 1, 0)
    is_same = (alone.float() - others).norm(dim=1) < 0.3
    assert is_same.all() or distance(together, others) > 0.1


def test_a_text_without_tokens_has_the_vector_of_padding_and_not_of_its_neighbour():
    batch = batch_of([4, 1, 3, 1])
    for row in (1, 3):
        batch["input_ids"][row] = batch["attention_mask"][row] = 0
    given = {name: tensor.clone() for name, tensor in batch.items()}
    found = unpadded_bert().first_states(**batch)
    assert all(torch.equal(batch[name], given[name]) for name in batch)
    padding = {"input_ids": torch.zeros(1, 1).long(), "attention_mask": torch.ones(1, 1).long()}
    wanted = unpadded_bert().first_states(**padding).float()
    assert distance(found[1:2], wanted) < 0.03
    assert distance(found[3:], wanted) < 0.03


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            DistilBertConfig(vocab_size=120, dim=32, hidden_dim=48, n_layers=1, n_heads=2),
            "encoder of type 'distilbert' with activation None; expected 'gelu' and one of bert, ",
        ),
        (BertConfig(**SMALL, hidden_act="relu"), "of type 'bert' with activation 'relu'"),
    ],
)
def test_other_architectures_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        UnpaddedBert(encoder_of(config))


def test_an_encoder_that_computes_something_else_stays_as_it_is(caplog):
    """One whose code differs from BERT's, although its configuration says it is one."""
    bert = encoder_of(CONFIGS[0])
    bert.encoder.layer[1].output.LayerNorm.eps = 3.0
    with caplog.at_level(logging.INFO):
        assert choose_backend(bert) is None
    assert "not computed without padding: its vectors of tokens are" in caplog.text


def test_wrong_first_tokens_are_noticed(monkeypatch, caplog):
    usual = UnpaddedBert.first_states
    monkeypatch.setattr(UnpaddedBert, "first_states", lambda self, **batch: -usual(self, **batch))
    with caplog.at_level(logging.INFO):
        assert choose_backend(encoder_of(CONFIGS[0])) is None
    assert "its vectors of first tokens are" in caplog.text
