"""The dual encoder: poolers, padding, and order."""

import numpy as np
import pytest
import torch

from longtail.models.encoders.dual_encoder import DualEncoder, Role, encode_all
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts

TEXTS = ["river", "law " * 20, "steel tax", "", "the court and the port", "milk " * 9, "fish"]
ROLES: tuple[Role, ...] = ("document", "label")


@pytest.fixture
def tokens(tokenizer):
    return tokenize_texts(tokenizer, TEXTS, 30)


def encode(model: DualEncoder, tokens: TokenizedTexts, role: Role) -> np.ndarray:
    return encode_all(model, tokens, role, pad_id=0)


def one_by_one(model: DualEncoder, tokens: TokenizedTexts, role: Role) -> np.ndarray:
    """The oracle: each text alone, without padding, through the transformer and its pooler."""
    vectors = []
    with torch.inference_mode():
        for row in range(len(tokens)):
            ids = torch.tensor(tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]])[None]
            hidden = model.transformer(input_ids=ids).last_hidden_state[0]
            if role == "document":
                vectors.append(model.document_pooler(hidden[0]))
            else:
                vectors.append(model.label_pooler(hidden.mean(dim=0)))
    return torch.stack(vectors).numpy()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("budget", [1, 40, 4096])
def test_a_text_has_the_vector_that_it_has_alone(dual_encoder, tokens, role, budget, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.dual_encoder._ENCODE_TOKENS", budget)
    found = encode(dual_encoder, tokens, role)
    np.testing.assert_allclose(found, one_by_one(dual_encoder, tokens, role), atol=1e-5)


@pytest.mark.parametrize("budget", [16, 64])
def test_a_batch_holds_no_more_tokens_than_the_budget(dual_encoder, tokenizer, budget, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.dual_encoder._ENCODE_TOKENS", budget)
    sizes = []
    hook = dual_encoder.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].ids))
    texts = ["river " * (i % 14) for i in range(50)]
    encode(dual_encoder, tokenize_texts(tokenizer, texts, 16), "document")
    hook.remove()
    assert max(ids.numel() for ids in sizes) <= budget
    assert sum(len(ids) for ids in sizes) == 50


def test_encoding_switches_dropout_off(dual_encoder, tokens):
    wanted = encode(dual_encoder, tokens, "document")
    np.testing.assert_array_equal(encode(dual_encoder.train(), tokens, "document"), wanted)
    assert not dual_encoder.training


def test_batches_at_once_have_the_vectors_of_batches_one_after_the_other(
    dual_encoder, tokens, monkeypatch
):
    monkeypatch.setattr("longtail.models.encoders.dual_encoder._ENCODE_TOKENS", 40)
    wanted = encode(dual_encoder, tokens, "document")
    done, before = [], torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = encode_all(dual_encoder, tokens, "document", pad_id=0, progress=done.append)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found, wanted)
    assert sum(done) == len(tokens) and len(done) > 1


def test_an_error_in_one_of_several_batches_is_raised(dual_encoder, tokens, monkeypatch):
    monkeypatch.setattr("longtail.models.encoders.dual_encoder._ENCODE_TOKENS", 40)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)

    def refuse(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_all(dual_encoder, tokens, "document", pad_id=0, progress=refuse)
