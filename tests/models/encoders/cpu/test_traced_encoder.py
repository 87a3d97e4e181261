"""A traced encoder answers as the encoder does, to the bit, or is not used."""

from __future__ import annotations

import gc
import logging
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    MPNetConfig,
    XLMRobertaConfig,
)

from longtail.models.encoders.cpu import traced as traced_encoder
from longtail.models.encoders.cpu.backend import choose_backend
from longtail.models.encoders.cpu.traced import TracedTransformer, trace_transformer
from longtail.models.predict.predictor import Predictor

SMALL = {"vocab_size": 120, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT = BertConfig(hidden_size=32, intermediate_size=48, **SMALL)
TEXTS = ["Council regulation", "one", "the price of olive oil in the Community " * 20, "a b c d"]


@pytest.fixture(autouse=True)
def nothing_is_packed(monkeypatch):
    """As where PyTorch has no oneDNN; else BERT is computed without padding, and not traced."""
    monkeypatch.setattr("longtail.models.encoders.cpu.backend.can_pack", lambda dtype: False)


def transformer_of(config, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return AutoModel.from_config(config).to(dtype).eval()


def bert(seed=0, dtype=torch.float32):
    return transformer_of(BERT, seed, dtype)


def batches():
    for num_texts, width in ((1, 1), (1, 9), (4, 23), (7, 64), (2, 300)):
        ids = torch.randint(3, 100, (num_texts, width))
        lengths = torch.randint(1, width + 1, (num_texts,))
        lengths[0] = width
        for least in (1, width):
            yield ids, (torch.arange(width) < lengths.clamp(min=least)[:, None]).long()


def same_answers(transformer, traced):
    with torch.inference_mode():
        return all(
            torch.equal(
                transformer(input_ids=ids, attention_mask=mask).last_hidden_state,
                traced(input_ids=ids, attention_mask=mask).last_hidden_state,
            )
            for ids, mask in batches()
        )


DISTILBERT = DistilBertConfig(vocab_size=120, dim=32, hidden_dim=48, n_layers=2, n_heads=2)
MPNET = MPNetConfig(hidden_size=32, intermediate_size=48, **SMALL)
XLM_ROBERTA = XLMRobertaConfig(hidden_size=32, intermediate_size=48, **SMALL)


@pytest.mark.parametrize(
    "config", [BERT, DISTILBERT, MPNET, XLM_ROBERTA], ids=lambda config: config.model_type
)
def test_the_trace_gives_the_same_bits_for_batches_of_other_shapes(config):
    transformer = transformer_of(config)
    traced = choose_backend(transformer)
    assert isinstance(traced, TracedTransformer)
    assert same_answers(transformer, traced)


def test_the_trace_computes_in_the_precision_of_the_encoder():
    transformer = transformer_of(DISTILBERT, dtype=torch.bfloat16)
    traced = choose_backend(transformer)
    assert isinstance(traced, TracedTransformer)
    assert traced.dtype == torch.bfloat16
    assert same_answers(transformer, traced)


def test_weights_that_can_not_be_packed_leave_the_encoder_traced(monkeypatch, caplog):
    def no_order(weight):
        raise RuntimeError("no such order")

    monkeypatch.setattr("longtail.models.encoders.cpu.backend.can_pack", lambda dtype: True)
    monkeypatch.setattr("longtail.models.encoders.cpu.unpadded.packed", no_order)
    transformer = bert(dtype=torch.bfloat16)
    with caplog.at_level(logging.INFO):
        found = choose_backend(transformer)
    assert isinstance(found, TracedTransformer)
    assert "not computed without padding: RuntimeError: no such order" in caplog.text
    assert same_answers(transformer, found)


def test_one_trace_serves_all_models_of_an_architecture_each_with_its_own_weights(monkeypatch):
    monkeypatch.setattr(traced_encoder, "_traces", traces := {})
    ones, others = bert(seed=1), bert(seed=2)
    traced_ones, traced_others = trace_transformer(ones), trace_transformer(others)
    assert len(traces) == 1
    assert same_answers(ones, traced_ones)
    assert same_answers(others, traced_others)
    assert not same_answers(ones, traced_others)
    trace_transformer(bert(dtype=torch.bfloat16))
    assert len(traces) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trace_holds_no_weights(dtype, monkeypatch):
    monkeypatch.setattr(traced_encoder, "_traces", traces := {})
    transformer = bert(dtype=dtype)
    traced = trace_transformer(transformer)
    held = [weakref.ref(tensor) for tensor in transformer.parameters()]
    held += [weakref.ref(tensor) for tensor in traced._weights]
    assert all(tensor() is not None for tensor in held)
    del transformer, traced
    gc.collect()
    assert len(traces) == 1
    assert all(tensor() is None for tensor in held)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_python_is_not_the_only_holder_of_a_weight(dtype):
    traced = trace_transformer(bert(dtype=dtype))
    assert all(weight._use_count() > 1 for weight in traced._weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_may_use_it_at_once(dtype):
    transformer = bert(dtype=dtype)
    traced = trace_transformer(transformer)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: same_answers(transformer, traced), range(8)))


class Hasty(BertModel):
    """Decides by the length of its texts."""

    def forward(self, input_ids, attention_mask):
        found = super().forward(input_ids=input_ids, attention_mask=attention_mask)
        if input_ids.shape[1] > 20:
            found.last_hidden_state = -found.last_hidden_state
        return found


class Broken(BertModel):
    """Can't be traced."""

    def forward(self, input_ids, attention_mask):
        if torch.jit.is_tracing():
            raise RuntimeError("not under tracing")
        return super().forward(input_ids=input_ids, attention_mask=attention_mask)


@pytest.mark.parametrize(
    ("made", "why"),
    [(Hasty, "other vectors for 1 full texts of 40 tokens"), (Broken, "not under tracing")],
)
def test_an_encoder_that_can_not_be_traced_stays_as_it_is(made, why, monkeypatch, caplog):
    monkeypatch.setattr(traced_encoder, "_traces", {})
    with caplog.at_level(logging.WARNING):
        assert choose_backend(made(BERT).eval()) is None
    assert why in caplog.text


def test_a_loaded_model_answers_by_the_trace_as_it_would_without(trained, monkeypatch):
    traced = Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)
    assert isinstance(traced._parts.dense.encoder.transformer, TracedTransformer)
    assert traced.encoder_precision == "float32"
    monkeypatch.setattr(
        "longtail.models.encoders.cpu.backend.choose_backend", lambda transformer: None
    )
    stepwise = Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)
    assert not isinstance(stepwise._parts.dense.encoder.transformer, TracedTransformer)
    assert traced.predict(TEXTS) == stepwise.predict(TEXTS)
