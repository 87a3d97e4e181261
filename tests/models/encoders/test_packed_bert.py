"""BERT in training without padding: the transformer's own answers and gradients."""

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertConfig, DistilBertConfig, PreTrainedModel, RobertaConfig

from longtail.models.encoders.bert import can_pack, first_states, last_layer
from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.tokens import TokenBatch
from longtail.training.neural.model import checkpoint_gradients

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24,
    "vocab_size": 60, "max_position_embeddings": 20,
}  # fmt: skip
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "relu": BertConfig(**SIZES, hidden_act="relu"),
    "one layer": BertConfig(**SIZES | {"num_hidden_layers": 1}),
    "roberta": RobertaConfig(**SIZES, pad_token_id=1),
}
LENGTHS = {"unlike": (3, 9, 1, 5), "all full": (6, 6, 6), "one": (4,), "one token": (1, 1)}


def transformer_of(config, *, dropout: float = 0.0) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModel.from_config(config).train()
        for name, parameter in model.named_parameters():
            if "LayerNorm" in name or "bias" in name:  # which begin as ones and zeros
                nn.init.normal_(parameter, mean=0.5, std=0.3)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model


def batch_of(lengths, pad_id: int = 0) -> TokenBatch:
    generator = torch.Generator().manual_seed(1)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, 60, mask.shape, generator=generator)
    return TokenBatch(torch.where(mask > 0, ids, pad_id), mask)


def own_layer(transformer, batch: TokenBatch) -> torch.Tensor:
    hidden = transformer(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
    return hidden * batch.mask.unsqueeze(-1)


def own_first(transformer, batch: TokenBatch) -> torch.Tensor:
    return own_layer(transformer, batch)[:, 0]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    ("packed", "own"), [(last_layer, own_layer), (first_states, own_first)], ids=["all", "first"]
)
def test_answers_and_gradients_are_the_transformers_own(name, lengths, packed, own):
    config = CONFIGS[name]
    batch = batch_of(lengths, pad_id=config.pad_token_id)
    found: list[torch.Tensor] = []
    gradients: list[dict[str, torch.Tensor]] = []
    for compute in (packed, own):
        transformer = transformer_of(config)
        states = compute(transformer, batch)
        weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(2))
        (states * weights).sum().backward()
        found.append(states.detach())
        gradients.append(
            {key: p.grad for key, p in transformer.named_parameters() if p.grad is not None}
        )
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    assert set(gradients[0]) == set(gradients[1])
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][key], atol=2e-5, rtol=1e-4, msg=key)


@pytest.mark.parametrize("packed", [last_layer, first_states])
def test_dropout_is_the_modules_and_only_in_training(packed):
    transformer, batch = transformer_of(CONFIGS["bert"], dropout=0.3), batch_of((3, 9))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [packed(transformer, batch) for _ in range(2)]
        torch.manual_seed(0)
        again = packed(transformer, batch)
    assert not torch.allclose(*drawn)
    assert torch.equal(drawn[0], again)
    transformer.eval()
    torch.testing.assert_close(packed(transformer, batch), packed(transformer, batch))
    torch.testing.assert_close(
        last_layer(transformer, batch), own_layer(transformer, batch), atol=1e-5, rtol=1e-5
    )


@pytest.fixture
def forwards(monkeypatch):
    """Counts the calls of a transformer's own forward pass."""

    def watch(transformer: PreTrainedModel) -> list[int]:
        calls: list[int] = []
        inner = transformer.forward

        def forward(*args, **kwargs):
            calls.append(1)
            return inner(*args, **kwargs)

        monkeypatch.setattr(transformer, "forward", forward)
        return calls

    return watch


def test_others_than_bert_and_layers_computed_twice_are_left_to_the_transformer(forwards):
    other = DistilBertConfig(
        dim=16, n_layers=2, n_heads=4, hidden_dim=24, vocab_size=60, max_position_embeddings=20
    )
    twice = transformer_of(CONFIGS["bert"])
    checkpoint_gradients(DualEncoder(twice))
    batch = batch_of((3, 9))
    for transformer in (transformer_of(other), twice):
        assert not can_pack(transformer, batch)
        encoder = DualEncoder(transformer).train()
        calls = forwards(transformer)
        encoder(batch, "document")
        assert calls
    assert can_pack(transformer_of(CONFIGS["roberta"]), batch)
