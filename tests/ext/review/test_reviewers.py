"""Reviewers against a server that misbehaves in every way: scores, or an error that says why."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel

from longtail.ext.review import endpoint
from longtail.ext.review.endpoint import _log_odds, _ranked_scores
from longtail.ext.review.reviewer import ReviewError, attempted_scores, open_reviewer
from longtail.models.errors import ConfigError
from tests.bench.reviewers import BREAKS, LIES, SLOW, standing_in

CANDIDATES = [f"label {i}" for i in range(40)]
KEY = "secret-key"


def number_in(text, candidate):
    return float(candidate.split()[-1]) / 10 - 2


def ask(kind, url, *, candidates=CANDIDATES, attempts=1, limit_s=0.5):
    async def work():
        reviewer = open_reviewer(kind, url, "small", KEY)
        try:
            async with asyncio.timeout(limit_s):
                return await attempted_scores(reviewer, "a text", candidates, attempts)
        finally:
            await reviewer.close()

    return asyncio.run(work())


@pytest.mark.parametrize("kind", ["rerank", "chat"])
def test_scores_come_in_the_order_of_the_candidates(kind):
    with standing_in(number_in) as server:
        found = ask(kind, server.url, limit_s=30)
    assert found == pytest.approx([number_in("", each) for each in CANDIDATES])
    assert len(server.bodies) == (2 if kind == "rerank" else len(CANDIDATES))


@pytest.mark.parametrize("kind", ["rerank", "chat"])
@pytest.mark.parametrize("fault", LIES)
def test_after_a_lie_there_is_no_second_attempt(kind, fault):
    if kind == "chat" and fault in {"too-many", "twice"}:
        return  # there is one score in an answer
    named = CANDIDATES[: 2 if kind == "rerank" else 1]
    with standing_in(number_in, [fault] * 9) as server, pytest.raises(ReviewError) as caught:
        ask(kind, server.url, candidates=named, attempts=3, limit_s=30)
    assert len(server.bodies) == 1
    assert KEY not in str(caught.value) and "a text" not in str(caught.value)


@pytest.mark.parametrize("fault", BREAKS)
def test_a_failure_that_may_pass_gets_a_second_attempt(fault):
    with standing_in(number_in, [fault]) as server:
        assert len(ask("rerank", server.url, attempts=2, limit_s=30)) == len(CANDIDATES)
    with standing_in(number_in, [fault] * 2) as server, pytest.raises(ReviewError):
        ask("rerank", server.url, attempts=2, limit_s=30)


def test_what_a_connection_receives_is_bounded_for_each_request():
    sent = endpoint._MAX_RECEIVED_BYTES
    stream = SimpleNamespace(read=AsyncMock(return_value=bytes(sent)), write=AsyncMock())

    async def work():
        info = {"return_value": stream}
        await endpoint._limit_received("connection.connect_tcp.complete", info)
        for _ in range(2):
            await stream.write(b"a request", timeout=None)
            assert len(await stream.read(2**16, timeout=None)) == sent
        with pytest.raises(httpx.ReadError):
            await stream.read(2**16, timeout=None)

    asyncio.run(work())


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_answer_ends_with_the_time(fault):
    with standing_in(number_in, [fault]) as server, pytest.raises(TimeoutError):
        ask("rerank", server.url)


def test_a_chat_without_yes_and_no_gives_no_score():
    with standing_in(lambda *_: 0.0) as server:
        server._chat = lambda _: (
            b'{"choices": [{"logprobs": {"content": [{"top_logprobs": ['
            b'{"token": "maybe", "logprob": -0.1}]}]}}]}'
        )
        with pytest.raises(ReviewError, match="neither yes nor no"):
            ask("chat", server.url, candidates=["one"], limit_s=30)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("oracle", "http://a"), "rerank, chat, cross-encoder"),
        (("rerank", ""), "LONGTAIL_REVIEW_ADDRESS"),
        (("rerank", "ftp://a"), "expected http"),
        (("rerank", "http://user:password@a"), "without a user"),
        (("rerank", "http://[::1"), "expected http"),
        (("rerank", "http://a", "", "tab\tinside"), "printable"),
        (("chat", "http://a"), "LONGTAIL_REVIEW_MODEL"),
        (("cross-encoder", "/no/folder"), "expected a folder"),
    ],
)
def test_wrong_settings_are_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        open_reviewer(*arguments)


def test_a_key_comes_from_the_setting_or_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    for key, path, sent in (("given", file, "given"), ("", file, KEY), ("", None, None)):
        reviewer = open_reviewer("rerank", "http://a", "", key, path)
        expected = sent and f"Bearer {sent}"
        assert reviewer._http.headers.get("Authorization") == expected
    (tmp_path / "large").write_text("k" * 2**15)
    for bad in (tmp_path / "none", tmp_path / "large", tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="key-file"):
            open_reviewer("rerank", "http://a", "", "", bad)


@pytest.fixture
def classifier(tiny_encoder, tmp_path):
    """Makes a folder with a tiny sequence classifier of random weights."""

    def make(num_labels=1, kind=BertForSequenceClassification):
        folder = tmp_path / f"classifier-{num_labels}"
        shutil.copytree(tiny_encoder, folder)
        config = BertConfig.from_pretrained(tiny_encoder, num_labels=num_labels)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            kind(config).save_pretrained(folder)
        return str(folder)

    return make


def test_a_cross_encoder_scores_pairs_alike_alone_and_together(classifier):
    for num_labels in (1, 2):
        folder = classifier(num_labels)
        names = ["olive oil", "fishing", "imports of steel", *CANDIDATES[:9]]
        together = ask("cross-encoder", folder, candidates=names, limit_s=60)
        alone = [ask("cross-encoder", folder, candidates=[x], limit_s=60)[0] for x in names[:3]]
        assert together[:3] == pytest.approx(alone, abs=1e-5)
        assert len(set(together[:3])) > 1


def test_what_is_no_classifier_of_pairs_is_refused(classifier):
    with pytest.raises(ConfigError, match="3 classes"):
        open_reviewer("cross-encoder", classifier(3))
    with pytest.raises(ConfigError, match="missing"):
        open_reviewer("cross-encoder", classifier(2, BertModel))


def changed(folder, **given):
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"auto_map": {"AutoConfig": "evil.M"}, "model_type": "evil"}, "can't be loaded"),
        ({"hidden_size": 4096, "num_attention_heads": 1}, "can't be loaded"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "can't be loaded"),
        ({"id2label": 3}, "can't be loaded"),
        ({"num_labels": 10**6, "id2label": {"0": "no"}}, "1000000 classes"),
    ],
)
def test_a_folder_that_can_not_be_loaded_is_refused_in_a_sentence(
    classifier, monkeypatch, given, words
):
    folder = classifier()
    changed(folder, **given)
    if "num_labels" in given:  # before there is an object for each class
        monkeypatch.setattr("transformers.AutoConfig.from_pretrained", None)
    with pytest.raises(ConfigError, match=words):
        open_reviewer("cross-encoder", folder)


def test_weights_that_are_not_finite_are_refused(classifier):
    path = Path(classifier()) / "model.safetensors"
    weights = load_file(path)
    weights["classifier.bias"][:] = float("nan")
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ConfigError, match="not finite"):
        open_reviewer("cross-encoder", str(path.parent))


@pytest.mark.parametrize("value", [True, "1e3", "1", None, [1]])
def test_only_numbers_are_scores(value):
    ranked = [{"index": 0, "score": 1}, {"index": 1, "score": value}]
    with pytest.raises(TypeError):
        _ranked_scores(ranked, 2)
    with pytest.raises(TypeError):
        _ranked_scores([{"index": value, "score": 1}], 1)
    listed = [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": value}]
    with pytest.raises(TypeError):
        _log_odds({"choices": [{"logprobs": {"content": [{"top_logprobs": listed}]}}]})
