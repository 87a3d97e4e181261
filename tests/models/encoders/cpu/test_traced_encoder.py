"""A recorded encoder answers as the encoder does, or is not used: to the bit, but for attention."""

from __future__ import annotations

import copy
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

from models.encoders.cpu import attention as short_attention
from models.encoders.cpu import traced as traced_encoder
from models.encoders.cpu import unpadded as unpadded_encoder
from models.encoders.cpu.torch_internals import can_pack
from models.encoders.cpu.traced import TracedTransformer, trace_transformer
from models.predict.predictor import Predictor

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


def errors_of(transformer, *others):
    """Distances from the vectors of float32: of an encoder, and of others, over all batches."""
    exact = copy.deepcopy(transformer).float()
    sums = torch.zeros(1 + len(others))
    with torch.inference_mode():
        for ids, mask in batches():
            is_real = mask.bool()
            wanted = exact(input_ids=ids, attention_mask=mask).last_hidden_state[is_real]
            for i, each in enumerate((transformer, *others)):
                found = each(input_ids=ids, attention_mask=mask).last_hidden_state[is_real]
                sums[i] += (found.float() - wanted).norm()
    return sums.tolist()


def like_answers(transformer, traced):
    own, found = errors_of(transformer, traced)
    return 0 < found < 1.2 * own


DISTILBERT = DistilBertConfig(vocab_size=120, dim=32, hidden_dim=48, n_layers=2, n_heads=2)
MPNET = MPNetConfig(hidden_size=32, intermediate_size=48, **SMALL)
XLM_ROBERTA = XLMRobertaConfig(hidden_size=32, intermediate_size=48, **SMALL)


@pytest.mark.parametrize(
    "config", [BERT, DISTILBERT, MPNET, XLM_ROBERTA], ids=lambda config: config.model_type
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
    assert like_answers(transformer, traced)


HAS_BFLOAT16 = can_pack(torch.bfloat16)
packs = pytest.mark.skipif(not HAS_BFLOAT16, reason="oneDNN has no bfloat16 on this processor")


@pytest.fixture
def recorded(monkeypatch):
    """Encoders in bfloat16 are recorded, of BERT's architecture too."""
    monkeypatch.setattr(traced_encoder, "_WAYS", traced_encoder._WAYS[1:])


@pytest.fixture
def without_short_attention(monkeypatch):
    """Encoders in bfloat16 are recorded with packed weights and their own attention."""
    monkeypatch.setattr(traced_encoder, "_WAYS", traced_encoder._WAYS[2:])


@packs
@pytest.mark.usefixtures("without_short_attention")
def test_weights_in_bfloat16_are_packed_and_the_bits_stay():
    transformer = bert(dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced.way.is_packed
    packed = [tensor for tensor in traced._weights if tensor.layout == torch._mkldnn]
    assert len(packed) == 2 * 6 + 1  # of two layers and the pooler
    assert same_answers(transformer, traced)
    assert not trace_transformer(bert()).way.is_packed


@packs
def test_where_weights_can_not_be_packed_the_encoder_is_recorded_with_its_own(monkeypatch, caplog):
    monkeypatch.setattr(traced_encoder, "_recordings", {})

    def no_order(weight):
        raise RuntimeError("no such order")

    monkeypatch.setattr(traced_encoder, "packed", no_order)
    monkeypatch.setattr(unpadded_encoder, "packed", no_order)
    transformer = bert(dtype=torch.bfloat16)
    with caplog.at_level(logging.WARNING):
        traced = trace_transformer(transformer)
    assert not traced.way.is_packed
    assert "not recorded with packed weights: RuntimeError: no such order" in caplog.text
    assert "step by step" not in caplog.text
    assert same_answers(transformer, traced)


@packs
@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "config", [BERT, DISTILBERT, XLM_ROBERTA], ids=lambda config: config.model_type
)
def test_attention_for_short_texts_is_as_near_to_float32_as_the_encoders_own(config):
    transformer = transformer_of(config, dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced.way.is_short
    assert like_answers(transformer, traced)


@packs
def test_an_encoder_whose_attention_can_not_be_replaced_keeps_it(caplog):
    transformer = transformer_of(MPNET, dtype=torch.bfloat16)
    with caplog.at_level(logging.INFO):
        traced = trace_transformer(transformer)
    assert traced.way.is_packed
    assert not traced.way.is_short
    assert "encoder of type 'mpnet': its attention can't be replaced" in caplog.text
    assert same_answers(transformer, traced)


@packs
@pytest.mark.usefixtures("recorded")
def test_small_batches_come_in_few_shapes(monkeypatch):
    traced = trace_transformer(bert(dtype=torch.bfloat16))
    shapes = []

    def note_shape(ids, mask, *weights):
        shapes.append(tuple(ids.shape))
        assert ids.shape == mask.shape
        assert mask.sum() == num_texts * width
        return torch.zeros(*ids.shape, 32), ids, mask

    monkeypatch.setattr(traced, "_recording", note_shape)
    for num_texts, width in ((1, 1), (1, 8), (3, 9), (4, 65), (1, 511)):
        ids = torch.full((num_texts, width), 5)
        found = traced(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        assert found.shape == (num_texts, width, 32)
    assert shapes == [(1, 8), (1, 8), (3, 16), (4, 65), (1, 511)]


@packs
@pytest.mark.usefixtures("recorded")
def test_a_batch_is_padded_to_the_window_at_most(monkeypatch):
    config = BertConfig(hidden_size=32, intermediate_size=48, max_position_embeddings=13, **SMALL)
    transformer = transformer_of(config, dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced.way.is_short
    ids = torch.arange(3, 16)[None]
    wanted, found = (
        each(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.float()
        for each in (transformer, traced)
    )
    assert torch.allclose(wanted, found, atol=0.1)


@packs
@pytest.mark.usefixtures("recorded")
def test_longer_texts_have_pytorchs_attention(monkeypatch):
    monkeypatch.setattr(short_attention, "MOST_TOKENS", 0)
    monkeypatch.setattr(traced_encoder, "_recordings", {})
    transformer = bert(dtype=torch.bfloat16)
    traced = trace_transformer(transformer)
    assert traced.way.is_short
    assert same_answers(transformer, traced)


@packs
@pytest.mark.usefixtures("recorded")
def test_an_encoder_whose_attention_is_another_keeps_it(monkeypatch, caplog):
    monkeypatch.setattr(traced_encoder, "_recordings", {})

    def without_mask(query, key, value, mask, scale, most_tokens):
        return query

    monkeypatch.setattr(short_attention, "compiled", lambda _: without_mask)
    transformer = bert(dtype=torch.bfloat16)
    with caplog.at_level(logging.INFO):
        traced = trace_transformer(transformer)
    assert traced.way.is_packed
    assert not traced.way.is_short
    assert "its vectors of tokens are" in caplog.text
    assert "away from those of float32" in caplog.text
    assert same_answers(transformer, traced)


@pytest.mark.usefixtures("recorded")
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


@pytest.mark.usefixtures("recorded")
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


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_python_is_not_the_only_holder_of_a_weight(dtype):
    traced = trace_transformer(bert(dtype=dtype))
    assert all(weight._use_count() > 1 for weight in traced._weights)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_may_use_it_at_once(dtype):
    transformer = bert(dtype=dtype)
    traced = trace_transformer(transformer)
    is_alike = like_answers if traced.way.is_short else same_answers
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: is_alike(transformer, traced), range(8)))


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
    monkeypatch.setattr("models.predict.predictor.trace_transformer", lambda transformer: None)
    stepwise = Predictor.of_bundle(trained.bundle, device="cpu", num_threads=1)
    assert not isinstance(stepwise._parts.dense.encoder.transformer, TracedTransformer)
    assert recorded.predict(TEXTS) == stepwise.predict(TEXTS)
