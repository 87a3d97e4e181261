"""Long texts in overlapping windows: where they lie, what is made of them, and in a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TokenizersBackend

from models.bundle.bundle import open_bundle
from models.bundle.manifest import WINDOWS_FORMAT_VERSION, Manifest
from models.encoders.dual_encoder import DualEncoder, encode_all
from models.encoders.tokens import TokenizedTexts, WindowRows, tokenize_texts
from models.errors import BundleCorruptError, BundleVersionError
from models.parts.model_parts import ModelParts
from models.parts.storage import read_parts, write_parts
from models.predict.predictor import Predictor
from models.windows import WindowPool, Windows

MAX_TOKENS = 8  # [CLS], six tokens, [SEP]
WORDS = ["river", "fish", "law", "trade", "steel", "milk", "tax", "court", "port", "grain"]
LENGTHS = (1, 6, 7, 10, 11, 30, 3, 14, 15)
"""In words; windows of six with two in common begin at 0, 4, 8, and three reach to 14."""
NUM_WINDOWS = (1, 1, 2, 2, 3, 3, 1, 3, 3)
IS_CUT = (False, False, False, False, False, True, False, False, True)
TEXTS = [" ".join(WORDS[(i * i + j) % 10] for j in range(n)) for i, n in enumerate(LENGTHS)]
POOLS: tuple[WindowPool, ...] = ("mean", "max")


def windows_of(pool: WindowPool = "mean") -> Windows:
    return Windows(overlap=2, pool=pool, most=3)


@pytest.fixture(params=POOLS)
def tokens(request: pytest.FixtureRequest, tokenizer: TokenizersBackend) -> TokenizedTexts:
    return tokenize_texts(tokenizer, TEXTS, MAX_TOKENS, windows_of(request.param))


def ids_of_windows(tokens: TokenizedTexts, text: int) -> list[list[int]]:
    assert tokens.firsts is not None
    windows = range(tokens.firsts[text], tokens.firsts[text + 1])
    return [tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]].tolist() for i in windows]


def one_by_one(model: DualEncoder, tokenizer: TokenizersBackend, pool: WindowPool) -> np.ndarray:
    """The oracle: each window by itself, cut out of the text by hand."""
    vectors = []
    for text, length in zip(TEXTS, LENGTHS, strict=True):
        ids = tokenizer(text)["input_ids"]
        starts = [start for start in (0, 4, 8) if start == 0 or start < length - 2]
        found = []
        for start in starts:
            first = 1 + min(start, max(0, length - 6))  # the last window ends with the text
            some = [ids[0], *ids[first : min(first + 6, len(ids) - 1)], ids[-1]]
            with torch.inference_mode():
                hidden = model.transformer(input_ids=torch.tensor([some])).last_hidden_state
                found.append(model.document_pooler(hidden[0, 0]).numpy())
        vectors.append(np.mean(found, axis=0) if pool == "mean" else np.max(found, axis=0))
    return np.stack(vectors)


# ---- where they lie ----


@given(st.integers(0, 200), st.integers(2, 30), st.integers(2, 6), st.data())
def test_windows_cover_a_text_up_to_the_longest(num_tokens, width, most, data):
    overlap = data.draw(st.integers(0, width // 2))
    windows = Windows(overlap, "mean", most)
    spans = windows.spans(num_tokens, width)
    longest = windows.longest(width)
    assert spans[0][0] == 0 and len(spans) <= most
    assert all(end - start == min(width, num_tokens) for start, end in spans)
    assert spans[-1][1] == min(num_tokens, longest)
    for (start, end), (next_start, next_end) in pairwise(spans):
        assert start < next_start and end - next_start >= overlap
        assert end - next_start == overlap or next_end == num_tokens
    if num_tokens <= width:
        assert len(spans) == 1
    else:
        assert spans[-1][0] > (spans[-2][0] if len(spans) > 1 else -1)


@pytest.mark.parametrize(("width", "most", "overlap"), [(6, 3, 2), (6, 2, 3), (2, 9, 0)])
def test_no_text_has_a_window_that_it_does_not_need(width, most, overlap):
    windows = Windows(overlap, "mean", most)
    for num_tokens in range(1, 40):
        spans = windows.spans(num_tokens, width)
        before = Windows(overlap, "mean", max(1, len(spans) - 1)).longest(width)
        assert len(spans) == 1 or before < num_tokens


def test_tokens_are_told_by_text_and_every_window_has_the_special_ones(tokenizer, tokens):
    assert len(tokens) == len(TEXTS)
    assert tokens.num_tokens.tolist() == [length + 2 for length in LENGTHS]
    for text, (length, count) in enumerate(zip(LENGTHS, NUM_WINDOWS, strict=True)):
        found = ids_of_windows(tokens, text)
        whole = tokenizer(TEXTS[text])["input_ids"]
        assert len(found) == count
        assert {(ids[0], ids[-1]) for ids in found} == {(whole[0], whole[-1])}
        assert sum(map(len, found)) == tokens.lengths[text]
        assert found[0] == [*whole[: min(length, 6) + 1], whole[-1]]
        if not IS_CUT[text]:
            assert found[-1][1:-1] == whole[1:-1][-6:]


def test_texts_without_windows_are_cut_as_before(tokenizer):
    plain = tokenize_texts(tokenizer, TEXTS, MAX_TOKENS)
    assert plain.firsts is None
    windowed = tokenize_texts(tokenizer, TEXTS, MAX_TOKENS, windows_of())
    for text in range(len(TEXTS)):
        ids = plain.ids[plain.offsets[text] : plain.offsets[text + 1]].tolist()
        assert ids == ids_of_windows(windowed, text)[0]


def test_parts_of_texts_and_several_together_keep_their_windows(tokens):
    rows = [5, 0, 7, 5]
    taken = tokens.take(rows)
    joined = TokenizedTexts.joined([tokens.take([5, 0]), tokens.take([7]), tokens.take([5])])
    for some in (taken, joined):
        assert [ids_of_windows(some, i) for i in range(4)] == [
            ids_of_windows(tokens, row) for row in rows
        ]
        assert some.num_tokens.tolist() == tokens.num_tokens[rows].tolist()
        assert some.lengths.tolist() == tokens.lengths[rows].tolist()
        assert some.pool == tokens.pool
    first = tokens.first(6)
    assert [ids_of_windows(first, i) for i in range(6)] == [
        ids_of_windows(tokens, i) for i in range(6)
    ]
    assert len(first) == 6 and len(first.ids) == first.lengths.sum()


def test_no_texts_have_no_windows(dual_encoder, tokenizer):
    nothing = tokenize_texts(tokenizer, [], MAX_TOKENS, windows_of())
    assert encode_all(dual_encoder, nothing, "document", pad_id=0).shape == (0, dual_encoder.dim)


# ---- what is made of them ----


@pytest.mark.parametrize("budget", [1, 40, 4096])
def test_the_vector_of_a_text_is_the_mean_or_maximum_of_those_of_its_windows(
    dual_encoder, tokenizer, tokens, budget, monkeypatch
):
    monkeypatch.setattr("models.encoders.dual_encoder._ENCODE_TOKENS", budget)
    found = encode_all(dual_encoder, tokens, "document", pad_id=0)
    wanted = one_by_one(dual_encoder, tokenizer, tokens.pool)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_batch_of_windows_holds_no_more_tokens_than_the_budget(dual_encoder, tokens, monkeypatch):
    monkeypatch.setattr("models.encoders.dual_encoder._ENCODE_TOKENS", 48)
    sizes = []
    hook = dual_encoder.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].ids))
    encode_all(dual_encoder, tokens, "document", pad_id=0)
    hook.remove()
    assert max(ids.numel() for ids in sizes) <= 48
    assert sum(len(ids) for ids in sizes) == sum(NUM_WINDOWS)


def test_short_texts_have_to_the_bit_the_vectors_that_they_have_without_windows(
    dual_encoder, tokenizer
):
    short = [TEXTS[i] for i, count in enumerate(NUM_WINDOWS) if count == 1]
    found, wanted = (
        encode_all(
            dual_encoder, tokenize_texts(tokenizer, short, MAX_TOKENS, windows), "document",
            pad_id=0,
        )
        for windows in (windows_of(), None)
    )  # fmt: skip
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (0, 4), (3, 6), (1, 2), (5, 6), (6, 7)])
def test_a_part_of_a_batch_has_the_vectors_of_the_whole(dual_encoder, tokens, start, stop):
    batch = tokens.batch(np.arange(len(TEXTS)), 0, "cpu")
    part = batch.part(start, stop)
    assert (len(batch), len(part)) == (len(TEXTS), stop - start)
    assert part.ids.shape[1] == part.mask.sum(dim=1).max()
    with torch.inference_mode():
        wanted = dual_encoder(batch, "document")[start:stop]
        torch.testing.assert_close(dual_encoder(part, "document"), wanted, atol=1e-5, rtol=0)


def test_a_part_of_a_batch_without_windows_is_its_rows(tokenizer):
    batch = tokenize_texts(tokenizer, TEXTS, MAX_TOKENS).batch(np.arange(9), 0, "cpu")
    part = batch.part(6, 7)
    assert (len(batch), len(part), part.windows) == (9, 1, None)
    assert part.ids.tolist() == batch.ids[6:7, :5].tolist()


@pytest.mark.parametrize("pool", POOLS)
def test_gradients_go_into_every_window_that_counts(pool):
    counts = np.array([2, 1, 3])
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    (WindowRows.of(counts, pool, "cpu").pooled(vectors) * weights).sum().backward()
    parts = vectors.detach().split(counts.tolist())
    for part, weight, gradient in zip(
        parts, weights, vectors.grad.split(counts.tolist()), strict=True
    ):
        share = torch.full_like(part, 1 / len(part))
        if pool == "max":
            share = (part == part.amax(dim=0)).float()
        torch.testing.assert_close(gradient, share * weight)


# ---- in a bundle, and served ----


@pytest.fixture(params=POOLS)
def windowed(request: pytest.FixtureRequest, parts: ModelParts) -> ModelParts:
    assert parts.dense is not None
    return replace(parts, dense=replace(parts.dense, windows=windows_of(request.param)))


@pytest.fixture
def manifest_of(manifest: Manifest) -> Callable[[ModelParts], Manifest]:
    def make(parts: ModelParts) -> Manifest:
        assert parts.dense is not None
        return replace(manifest, windows=parts.dense.windows, format_version=WINDOWS_FORMAT_VERSION)

    return make


def test_a_bundle_reads_long_texts_as_the_model_did(windowed, manifest_of, tmp_path):
    write_parts(tmp_path / "bundle", windowed, manifest_of(windowed), tmp_path / "scratch")
    found = read_parts(open_bundle(tmp_path / "bundle"))
    assert found.dense.windows == windowed.dense.windows
    wanted, again = (
        Predictor(each, device="cpu").predict(TEXTS, k=7, scorer="retrieval")
        for each in (windowed, found)
    )
    assert again == wanted


def test_the_scores_are_those_of_the_pooled_vectors(windowed, tokenizer):
    dense = windowed.dense
    predictions = Predictor(windowed, device="cpu").predict(TEXTS, k=7, scorer="retrieval")
    vectors = one_by_one(dense.encoder, tokenizer, dense.windows.pool)
    scale, shift = dense.encoder.log_scale.exp().item(), dense.encoder.score_bias.item()
    scores = scale * vectors @ dense.label_vectors.T + shift
    for prediction, wanted in zip(predictions, scores, strict=True):
        assert [x.index for x in prediction.labels] == np.argsort(-wanted, kind="stable").tolist()
        found = [x.score for x in prediction.labels]
        np.testing.assert_allclose(found, np.sort(wanted)[::-1], rtol=1e-3, atol=1e-3)


def test_a_text_is_told_to_be_cut_only_where_the_last_window_ends_before_it(windowed):
    predictions = Predictor(windowed, device="cpu").predict(TEXTS, scorer="retrieval")
    assert [x.truncated for x in predictions] == list(IS_CUT)
    assert [x.num_text_tokens for x in predictions] == [length + 2 for length in LENGTHS]
    # Three windows of six with two in common reach to the 14th token.
    assert [x.num_tokens for x in predictions] == [min(length, 14) + 2 for length in LENGTHS]
    assert [x.known_tokens for x in predictions] == [min(length, 14) for length in LENGTHS]


def test_what_is_to_be_read_counts_every_window(windowed):
    predictor = Predictor(windowed, device="cpu")
    batch = predictor.read(TEXTS)
    wanted = [
        length + 2 if count == 1 else count * MAX_TOKENS
        for length, count in zip(LENGTHS, NUM_WINDOWS, strict=True)
    ]
    assert predictor.prepare(batch, "retrieval") == wanted
    assert predictor.max_tokens == 3 * MAX_TOKENS == max(wanted)


def test_a_bundle_without_windows_is_of_the_format_before(parts, manifest):
    assert (manifest.format_version, manifest.windows) == (4, None)
    assert "windows" not in json.loads(manifest.to_json())
    assert Predictor(parts, device="cpu").max_tokens == MAX_TOKENS


def test_a_release_that_reads_no_windows_refuses_a_bundle_with_them(
    windowed, manifest_of, monkeypatch
):
    text = manifest_of(windowed).to_json()
    assert Manifest.from_json(text, "here").windows == windowed.dense.windows
    monkeypatch.setattr("models.bundle.manifest._READABLE_VERSIONS", (3, 4))
    with pytest.raises(BundleVersionError, match="has format version 5, this release reads 3, 4;"):
        Manifest.from_json(text, "here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"overlap": 5}, "at least 2 windows, that overlap by at most half of the 8 tokens"),
        ({"overlap": -1}, "at least 2 windows"),
        ({"most": 1}, "at least 2 windows"),
        ({"most": 2.0}, "wanted whole numbers"),
        ({"pool": "sum"}, "a 'pool' of ('mean', 'max')"),
        ({"stride": 3}, "wanted whole numbers"),
    ],
)
def test_windows_that_can_not_be_read_are_refused(change, words, lie):
    def tell(content: dict[str, Any]) -> None:
        content["format_version"] = WINDOWS_FORMAT_VERSION
        content["windows"] = {"overlap": 2, "pool": "mean", "most": 3} | change

    folder: Path = lie(tell)
    with pytest.raises(BundleCorruptError) as error:
        open_bundle(folder)
    assert words in str(error.value)


def test_windows_without_an_encoder_are_refused(manifest):
    wrong = replace(
        manifest, encoder=None, windows=windows_of(), format_version=WINDOWS_FORMAT_VERSION
    )
    with pytest.raises(BundleCorruptError, match="without an encoder"):
        Manifest.from_json(wrong.to_json(), "here")
