"""The client of shards: against services of real shards, and against ones that are late or away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import longtail
from models.errors import BundleError, ConfigError, RequestError
from models.predictor import Predictor
from models.registry import Registry
from models.shard import read_map
from models.sharding import publish_shards
from service import shard_client
from service.client_calls import ConnectionFailedError, NoAnswerError, ProblemError
from service.schemas import ModelReference, PredictResponse, ScoredLabel, TextResult
from service.shard_client import MixedShardsError, ShardedClient, merged

TEXTS = ["Duties on imports of olive oil", "Fisheries in the Baltic Sea", "milk"]
NUM_SHARDS = 3


@pytest.fixture(scope="module")
def shards(trained, tmp_path_factory) -> Path:
    """A trained model, split."""
    folder = tmp_path_factory.mktemp("shards")
    publish_shards(trained.bundle, NUM_SHARDS, folder)
    return folder


def load_bundle(bundle: Any) -> Any:
    return Predictor.of_bundle(bundle, device="cpu")


@pytest.fixture
def urls(shards, open_server):
    with ExitStack() as stack:
        yield [
            [stack.enter_context(open_server(load_bundle, registry=shards / str(number)))]
            for number in range(NUM_SHARDS)
        ]


@pytest.mark.parametrize("scorer", ["retrieval", "classifier", "linear", "sparse", "ensemble"])
def test_shards_answer_as_the_whole_does(trained, shards, urls, scorer):
    async def ask() -> list[TextResult]:
        async with ShardedClient(urls, shards / "shards.json") as client:
            return [
                *await client.predict(TEXTS[0], k=9, scorer=scorer),
                *await client.predict(TEXTS[1], k=9, scorer=scorer),
            ]

    whole = Predictor.of_bundle(trained.bundle, device="cpu")
    for text, found in zip(TEXTS, asyncio.run(ask()), strict=False):
        (wanted,) = whole.predict([text], k=9, scorer=scorer)
        assert [(x.id, x.name, x.score, x.probability) for x in found.labels] == [
            (x.id, x.name, x.score, x.probability) for x in wanted.labels
        ]
        assert (found.num_tokens, found.truncated, found.exact) == (
            wanted.num_tokens, wanted.truncated, True
        )  # fmt: skip


def test_the_map_remembers_earlier_models(trained, trained_sparse, tmp_path):
    first = publish_shards(trained.bundle, 2, tmp_path)
    second = publish_shards(trained_sparse.bundle, 2, tmp_path)
    assert publish_shards(trained_sparse.bundle, 2, tmp_path) == second
    assert read_map(tmp_path / "shards.json") == [first, second]
    assert [Registry(tmp_path / str(i)).versions() for i in (0, 1)] == [[1, 2], [1, 2]]
    with pytest.raises(BundleError, match="holds models of 2 shards, 3 came"):
        publish_shards(trained.bundle, 3, tmp_path)


def test_the_command_splits_a_model(trained, tmp_path):
    given = ["registry", "split", "--registry", str(trained.registry.folder), "--shards", "2"]
    told = CliRunner().invoke(longtail.app, [*given, "--output", str(tmp_path)])
    assert told.exit_code == 0, told.output
    sizes = [len(Registry(tmp_path / str(i)).open().catalogue) for i in (0, 1)]
    assert f"2 shards of {sizes[0]} labels" in told.output
    found = json.loads(
        CliRunner().invoke(longtail.app, [*given, "--output", str(tmp_path), "--json"]).stdout
    )
    assert (found["digest"], found["shard_sizes"]) == (trained.bundle.manifest.digest, sizes)


def test_a_map_that_is_none(tmp_path):
    with pytest.raises(BundleError, match=r"shards.json' can't be read"):
        read_map(tmp_path / "shards.json")


class Fake:
    """Stands in for the client of one service.

    Attributes:
        behaviour: By URL: seconds until its answer, then what it answers or raises.
        asked: The URLs, in the order in which they were asked.
    """

    behaviour: dict[str, tuple[float, Any]]
    asked: list[str]
    closed: list[str]

    def __init__(self, url: str, **_: Any) -> None:
        self.url = url

    async def predict(self, texts: Any, **given: Any) -> PredictResponse:
        self.asked.append(self.url)
        seconds, answer = self.behaviour[self.url]
        await asyncio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed.append(self.url)


@pytest.fixture
def ask(tmp_path, monkeypatch) -> Callable[..., list[TextResult]]:
    """Ask two shards, the second of which is at the URLs given, that behave so."""
    (tmp_path / "map").write_text(
        json.dumps([{"digest": "w", "shard_digests": ["a", "b"], "shard_sizes": [5, 4]}])
    )
    monkeypatch.setattr(shard_client, "AsyncClient", Fake)
    Fake.asked, Fake.closed = [], []

    def ask_them(behaviour: dict[str, tuple[float, Any]], k: int = 2, **options: Any) -> Any:
        Fake.behaviour = {"a": (0, response("a", 1, 3)), **behaviour}

        async def run() -> list[TextResult]:
            async with ShardedClient([["a"], list(behaviour)], tmp_path / "map", **options) as all_:
                return await all_.predict("x", k=k)

        return asyncio.run(run())

    return ask_them


def response(digest: str, *scores: float) -> PredictResponse:
    labels = [
        ScoredLabel(id=f"{digest}{i}", name="", score=score, probability=None)
        for i, score in enumerate(sorted(scores, reverse=True))
    ]
    return PredictResponse(
        model=ModelReference(version=1, digest=digest), scorer="sparse", correction="none",
        tail_dial=0.0,
        results=[TextResult(labels=labels, num_tokens=1, truncated=False, exact=True)],
    )  # fmt: skip


def ids(found: list[TextResult]) -> list[str]:
    return [label.id for label in found[0].labels]


def test_equal_scores_keep_the_order_of_the_shards(ask):
    assert ids(ask({"b": (0, response("b", 3, 3))}, k=3)) == ["a0", "b0", "b1"]
    assert Fake.asked == sorted(Fake.closed) == ["a", "b"]


def test_an_answer_is_exact_where_all_are():
    whole, not_whole = response("a", 1).results[0], response("b", 2).results[0]
    assert not merged([whole, not_whole.model_copy(update={"exact": False})], 1).exact
    assert merged([whole, not_whole], 1).exact


def test_a_late_shard_is_asked_once_more(ask):
    found = ask({"slow": (60, None), "fast": (0, response("b", 2))}, hedge_after_s=0.01)
    assert ids(found) == ["a0", "b0"]
    assert Fake.asked == ["a", "slow", "fast"]


def test_the_first_answer_counts(ask):
    """The hedged request may be the slower one."""
    found = ask({"b": (0.05, response("b", 2)), "slow": (60, None)}, hedge_after_s=0.01)
    assert ids(found) == ["a0", "b0"]


def test_without_hedging_only_failures_are_asked_again(ask):
    away = ConnectionFailedError("away")
    assert ids(ask({"away": (0, away), "b": (0.02, response("b", 2))})) == ["a0", "b0"]
    assert Fake.asked == ["a", "away", "b"]


def test_the_last_error_is_told(ask):
    with pytest.raises(ConnectionFailedError, match="gone"):
        ask(
            {"away": (0, ConnectionFailedError("away")), "gone": (0, ConnectionFailedError("gone"))}
        )


def test_a_shard_that_never_answers(ask):
    with pytest.raises(NoAnswerError, match=r"within 0.05 s"):
        ask({"b": (60, None)}, timeout_s=0.05)


def test_versions_that_do_not_belong_together(ask):
    with pytest.raises(
        MixedShardsError, match=r"versions 1 \(a\), 1 \(other\), which are no split"
    ):
        ask({"b": (0, response("other", 2))})


@pytest.mark.parametrize("k", [0, 5])
def test_more_labels_than_a_shard_has(ask, k):
    with pytest.raises(RequestError, match=f"k is {k}; wanted 1 to 4"):
        ask({"b": (0, response("b", 2))}, k=k)


@pytest.mark.parametrize("wrong", [[["a"]], [["a"], ["b"], []], [["a"]] * 4])
def test_urls_of_another_number_of_shards(shards, wrong):
    with pytest.raises(ConfigError, match=r"URLs of \d shards came, wanted those of 3"):
        ShardedClient(wrong, shards / "shards.json")


def test_problems_of_a_shard_are_told(shards, urls):
    async def ask_badly() -> None:
        async with ShardedClient(urls, shards / "shards.json") as client:
            await client.predict("x", scorer="nobody")

    with pytest.raises(ProblemError, match="nobody"):
        asyncio.run(ask_badly())
