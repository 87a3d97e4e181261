"""A recorded encoder answers as the encoder does, to the bit, or is not used."""

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

from models import traced_encoder
from models.predictor import Predictor
from models.traced_encoder import TracedTransformer, trace_transformer

SMALL = {"vocab_size": 120, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT = BertConfig(hidden_size=32, intermediate_size=48, **SMALL)
TEXTS = ["Council regulation", "one", "the price of olive oil in the Community " * 20, "a b c d"]


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


@pytest.mark.parametrize(
    "config",
    [
        BERT,
        DistilBertConfig(vocab_size=120, dim=32, hidden_dim=48, n_layers=2, n_heads=2),
        MPNetConfig(hidden_size=32, intermediate_size=48, **SMALL),
        XLMRobertaConfig(hidden_size=32, intermediate_size=48, **SMALL),
    ],
    ids=lambda config: config.model_type,
)
def test_the_recording_gives_the_same_bits_for_batches_of_other_shapes(config):
    transformer = transformer_of(config)
    traced = trace_transformer(transformer)
    assert traced is not None
    assert same_answers(transformer, traced)


def test_the_recording_computes_in_the_precision_of_the_encoder():
    transformer = bert(dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced is not None
    assert traced.dtype == torch.bfloat16
    assert same_answers(transformer, traced)


HAS_BFLOAT16 = traced_encoder._can_pack(bert(dtype=torch.bfloat16))
packs = pytest.mark.skipif(not HAS_BFLOAT16, reason="oneDNN has no bfloat16 on this processor")


@packs
def test_weights_in_bfloat16_are_packed_and_the_bits_stay():
    transformer = bert(dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced.is_packed
    packed = [tensor for tensor in traced._weights if tensor.layout == torch._mkldnn]
    assert len(packed) == 2 * 6 + 1  # of two layers and the pooler
    assert same_answers(transformer, traced)
    assert not trace_transformer(bert()).is_packed


@packs
def test_where_weights_can_not_be_packed_the_encoder_is_recorded_with_its_own(monkeypatch, caplog):
    monkeypatch.setattr(traced_encoder, "_recordings", {})

    def no_order(weight):
        raise RuntimeError("no such order")

    monkeypatch.setattr(traced_encoder, "_in_order_of_onednn", no_order)
    transformer = bert(dtype=torch.bfloat16)
    with caplog.at_level(logging.WARNING):
        traced = trace_transformer(transformer)
    assert not traced.is_packed
    assert "recorded without packed weights" in caplog.text
    assert "RuntimeError: no such order" in caplog.text
    assert "step by step" not in caplog.text
    assert same_answers(transformer, traced)


def test_one_recording_serves_all_models_of_an_architecture_each_with_its_own_weights(monkeypatch):
    monkeypatch.setattr(traced_encoder, "_recordings", recordings := {})
    ones, others = bert(seed=1), bert(seed=2)
    traced_ones, traced_others = trace_transformer(ones), trace_transformer(others)
    assert len(recordings) == 1
    assert same_answers(ones, traced_ones)
    assert same_answers(others, traced_others)
    assert not same_answers(ones, traced_others)
    trace_transformer(bert(dtype=torch.bfloat16))
    assert len(recordings) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recording_holds_no_weights(dtype, monkeypatch):
    monkeypatch.setattr(traced_encoder, "_recordings", recordings := {})
    transformer = bert(dtype=dtype)
    traced = trace_transformer(transformer)
    held = [weakref.ref(tensor) for tensor in transformer.parameters()]
    held += [weakref.ref(tensor) for tensor in traced._weights]
    assert all(tensor() is not None for tensor in held)
    del transformer, traced
    gc.collect()
    assert len(recordings) == 1
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
    """Can't be recorded."""

    def forward(self, input_ids, attention_mask):
        if torch.jit.is_tracing():
            raise RuntimeError("not under tracing")
        return super().forward(input_ids=input_ids, attention_mask=attention_mask)


@pytest.mark.parametrize(
    ("made", "why"),
    [(Hasty, "other vectors for 1 full texts of 40 tokens"), (Broken, "not under tracing")],
)
def test_an_encoder_that_can_not_be_recorded_stays_as_it_is(made, why, monkeypatch, caplog):
    monkeypatch.setattr(traced_encoder, "_recordings", {})
    with caplog.at_level(logging.WARNING):
        assert trace_transformer(made(BERT).eval()) is None
    assert why in caplog.text


def test_a_loaded_model_answers_by_the_recording_as_it_would_without(trained, monkeypatch):
    recorded = Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)
    assert isinstance(recorded._parts.dense.encoder.transformer, TracedTransformer)
    assert recorded.encoder_precision == "float32"
    monkeypatch.setattr("models.predictor.trace_transformer", lambda transformer: None)
    stepwise = Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)
    assert not isinstance(stepwise._parts.dense.encoder.transformer, TracedTransformer)
    assert recorded.predict(TEXTS) == stepwise.predict(TEXTS)
