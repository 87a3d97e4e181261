"""The client of shards: against services of real shards, and against ones that are late or away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.shard import read_map
from longtail.models.edit import split_shards as sharding
from longtail.models.edit.split_shards import publish_shards
from longtail.models.errors import BundleError, ConfigError, RequestError
from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.predict.predictor import Predictor
from longtail.service.client import sharded as shard_client
from longtail.service.client.calls import ConnectionFailedError, NoAnswerError, ProblemError
from longtail.service.client.shard_consistency import MixedSetsError, MixedShardsError, check_alike
from longtail.service.client.sharded import ShardedClient, merged
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.predict import PredictResponse, ScoredLabel, TextResult
from longtail.service.schemas.shards import KnownLabels, LabelVector, LabelVectors, StoredSet
from longtail.service.wire.lines import scored_labels

TEXTS = ["Duties on imports of olive oil", "Fisheries in the Baltic Sea", "milk"]
NUM_SHARDS = 3
OF_PREDICTOR = ("scorer", "threshold", "tail_dial", "aim", "explain")


@pytest.fixture(scope="module")
def shards(trained, tmp_path_factory) -> Path:
    """A trained model, split."""
    folder = tmp_path_factory.mktemp("shards")
    publish_shards(trained.bundle, NUM_SHARDS, folder)
    return folder


@pytest.fixture(scope="module")
def uneven(trained, tmp_path_factory) -> Path:
    """The same, into shards of one label, of five, and of all others."""
    folder = tmp_path_factory.mktemp("uneven")
    num_labels = len(trained.bundle.catalogue)
    ranges = [range(1), range(1, 6), range(6, num_labels)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "shard_ranges", lambda *_: ranges)
        split = publish_shards(trained.bundle, NUM_SHARDS, folder)
    assert split.shard_sizes == (1, 5, num_labels - 6)
    return folder


def load_bundle(bundle: Any) -> Any:
    return Predictor.of_bundle(bundle, device="cpu")


@pytest.fixture
def serve(open_server, tmp_path):
    """Serve all shards of a folder, which know the sets `some` and `lost`; return the URLs."""  # noqa: DOC402
    sets = tmp_path / "sets"
    sets.mkdir()
    (sets / "lost.json").write_text('["gone", "too"]')
    with ExitStack() as stack:

        def serve_all(
            folder: Path, some: tuple[str, ...] = ("gone",), **settings: Any
        ) -> list[list[str]]:
            (sets / "some.json").write_text(json.dumps(some))
            return [
                [
                    stack.enter_context(
                        open_server(
                            load_bundle, registry=folder / str(number), label_sets=sets, **settings
                        )
                    )
                ]
                for number in range(NUM_SHARDS)
            ]

        yield serve_all


@pytest.fixture(scope="module")
def urls(shards, start_server, tmp_path_factory):
    """The shards of the trained model; no test changes what they serve."""  # noqa: DOC402
    sets = tmp_path_factory.mktemp("sets")
    (sets / "lost.json").write_text('["gone", "too"]')
    with ExitStack() as stack:
        yield [
            [
                stack.enter_context(
                    start_server(load_bundle, registry=shards / str(number), label_sets=sets)
                )
            ]
            for number in range(NUM_SHARDS)
        ]


def ask_once(urls: Any, shards: Path, texts: Any, **options: Any) -> list[TextResult]:
    async def run() -> list[TextResult]:
        async with ShardedClient(urls, shards / "shards.json") as client:
            return await client.predict(texts, **options)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "scorer", ["retrieval", "classifier", "linear", "sparse", "names", "ensemble"]
)
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


def test_shards_answer_about_some_labels_as_the_whole_does(trained, shards, serve):
    """With ids and sets; and say why, in the same words, where all of it is asked for."""
    ids = [label.id for label in trained.bundle.catalogue]
    some = LabelSet("some", (ids[0], ids[-1], "gone"))
    whole = Predictor.of_bundle(trained.bundle, device="cpu")
    urls = serve(shards, some.ids)
    for options, wanted in (
        ({"include": ids[3:5]}, LabelFilter(include=tuple(ids[3:5]))),
        ({"exclude": ids[:-9]}, LabelFilter(exclude=tuple(ids[:-9]))),
        ({"include_set": "some"}, LabelFilter(include_set=some)),
        (
            {"include": [ids[5]], "include_set": "some", "exclude": [ids[0]], "tail_dial": 0.5},
            LabelFilter((ids[5],), (ids[0],), some),
        ),
        ({"exclude_set": "some", "scorer": "linear"}, LabelFilter(exclude_set=some)),
        ({"include": []}, LabelFilter(include=())),
        ({"scorer": "ensemble"}, None),
    ):
        (found,) = ask_once(urls, shards, TEXTS[0], k=7, explain=True, **options)
        kept = {key: options[key] for key in ("scorer", "tail_dial") if key in options}
        (expected,) = whole.predict(TEXTS[:1], k=7, explain=True, label_filter=wanted, **kept)
        assert found.labels == scored_labels(expected)
    assert all(label.explanation for label in found.labels)


def test_shards_that_have_fewer_labels_than_are_wanted_give_all_they_have(trained, uneven, serve):
    """Up to all labels of the whole; with what may be asked besides."""
    whole = Predictor.of_bundle(trained.bundle, device="cpu")
    ids = [label.id for label in whole.catalogue]
    some = LabelSet("some", (*ids[:3], "gone", *ids[-40:]))
    urls = serve(uneven, some.ids, max_explained_labels=len(ids))
    for k, (options, wanted) in product(
        (6, len(ids)),
        (
            ({}, None),
            ({"scorer": "retrieval"}, None),  # it gives every label a score
            ({"explain": True, "scorer": "ensemble"}, None),
            ({"threshold": 0.3, "scorer": "ensemble"}, None),
            ({"tail_dial": 1.0, "scorer": "linear"}, None),
            ({"aim": "rare_labels", "threshold": 0.05, "scorer": "ensemble"}, None),
            ({"aim": "propensity", "scorer": "sparse"}, None),
            ({"include": ids[:9]}, LabelFilter(include=tuple(ids[:9]))),
            ({"exclude": ids[1:5]}, LabelFilter(exclude=tuple(ids[1:5]))),
            ({"include_set": "some", "explain": True}, LabelFilter(include_set=some)),
            ({"exclude_set": "some", "scorer": "sparse"}, LabelFilter(exclude_set=some)),
        ),
    ):
        (found,) = ask_once(urls, uneven, TEXTS[0], k=k, **options)
        kept = {x: options[x] for x in options if x in OF_PREDICTOR}
        (expected,) = whole.predict(TEXTS[:1], k=k, label_filter=wanted, **kept)
        assert found.labels == scored_labels(expected)
        assert found.exact
        assert options != {"scorer": "retrieval"} or len(found.labels) == k


def test_a_shard_refuses_more_than_its_service_allows(uneven, serve):
    urls = serve(uneven, max_k=6)
    assert len(ask_once(urls, uneven, TEXTS[0], k=6)[0].labels) == 6
    with pytest.raises(ProblemError, match="k is 7; expected 1 to 6"):
        ask_once(urls, uneven, TEXTS[0], k=7)


def test_stored_sets_that_differ_are_refused(trained, shards, open_server, tmp_path):
    """Not where only order and form of their files do."""
    first, second, *_ = ids = [label.id for label in trained.bundle.catalogue]
    folders = [tmp_path / str(number) for number in range(NUM_SHARDS)]
    with ExitStack() as stack:
        urls = []
        for number, folder in enumerate(folders):
            folder.mkdir()
            (folder / "some.json").write_text(json.dumps(ids[:2]))
            settings = {"registry": shards / str(number), "label_sets": folder}
            urls.append([stack.enter_context(open_server(load_bundle, **settings))])
        (folders[1] / "some.json").unlink()
        (folders[1] / "some.txt").write_text(f"{second}\n{first}\n{second}\n")
        for field in ("include_set", "exclude_set"):
            assert ask_once(urls, shards, TEXTS[0], **{field: "some"})
        (folders[1] / "some.txt").write_text(f"{second}\n{ids[-1]}\n")
        for field in ("include_set", "exclude_set"):
            with pytest.raises(
                MixedSetsError,
                match=rf"^{field} 'some': the shards have unlike sets of this name: 2 labels "
                r"\(\w{12}\) on shard 0, 2; 2 labels \(\w{12}\) on shard 1; put the same file into",
            ):
                ask_once(urls, shards, TEXTS[0], **{field: "some"})


def test_an_error_about_many_shards_names_a_few():
    stored = [StoredSet(label_count=1 + (number == 3), digest="d" * 64) for number in range(9)]
    with pytest.raises(
        MixedSetsError, match=r"1 labels \(d+\) on shard 0, 1, 2, 4, 5 and 3 more; 2 .* on shard 3;"
    ):
        check_alike("include_set 'x'", stored)


def test_shards_without_an_encoder_explain_as_the_whole_does(trained_sparse, serve, tmp_path):
    folder = tmp_path / "shards"
    publish_shards(trained_sparse.bundle, NUM_SHARDS, folder)
    (found,) = ask_once(serve(folder), folder, TEXTS[0], k=5, explain=True)
    (wanted,) = Predictor.of_bundle(trained_sparse.bundle).predict(TEXTS[:1], k=5, explain=True)
    assert found.labels == scored_labels(wanted)
    assert any(label.explanation.nearest for label in found.labels if label.explanation)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"include": ["X", "Y"]}, LabelFilter(include=("X", "Y"))),
        ({"exclude": ["X"]}, LabelFilter(exclude=("X",))),
        (
            {"include_set": "lost"},
            LabelFilter(include_set=LabelSet("lost", ("gone", "too"))),
        ),
    ],
)
def test_labels_that_no_shard_has_are_refused_as_by_the_whole(
    trained, shards, urls, options, wanted
):
    with pytest.raises(RequestError) as whole:
        Predictor.of_bundle(trained.bundle).predict(TEXTS[:1], label_filter=wanted)
    with pytest.raises(RequestError) as refused:
        ask_once(urls, shards, TEXTS[0], **options)
    assert str(refused.value) == str(whole.value)


def test_the_map_remembers_earlier_models(trained, trained_sparse, tmp_path):
    first = publish_shards(trained.bundle, 2, tmp_path)
    second = publish_shards(trained_sparse.bundle, 2, tmp_path)
    assert publish_shards(trained_sparse.bundle, 2, tmp_path) == second
    assert read_map(tmp_path / "shards.json") == [first, second]
    assert [Registry(tmp_path / str(i)).versions() for i in (0, 1)] == [[1, 2], [1, 2]]
    with pytest.raises(BundleError, match="holds models of 2 shards, got 3"):
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


SPLIT = {"digest": "w", "shard_digests": ["a", "b"], "shard_sizes": [5, 4]}


@pytest.mark.parametrize(
    "content",
    [None, [], [1], {}, [{}], [SPLIT | {"shard_sizes": [9]}],
     [SPLIT, SPLIT | {"shard_digests": ["a"], "shard_sizes": [9]}]],
)  # fmt: skip
def test_a_map_that_is_none(tmp_path, content):
    path = tmp_path / "shards.json"
    if content is not None:
        path.write_text(json.dumps(content))
    with pytest.raises(BundleError, match=r"shards.json' can't be read"):
        read_map(path)


class Fake:
    """Stands in for the client of one service.

    Attributes:
        behaviour: By URL: seconds until its answer, then what it answers or raises.
        asked: The URLs, in the order in which they were asked.
        counts: The number of labels that each was asked for, in the same order.
        told: By path and URL: what it says of labels.
    """

    behaviour: dict[str, tuple[float, Any]]
    asked: list[str]
    counts: list[int]
    closed: list[str]
    told: dict[str, dict[str, Any]]

    def __init__(self, url: str, **_: Any) -> None:
        self.url = url

    async def predict(self, texts: Any, **given: Any) -> PredictResponse:
        self.asked.append(self.url)
        self.counts.append(given["k"])
        seconds, answer = self.behaviour[self.url]
        await asyncio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def do(self, call: Any) -> Any:
        self.asked.append(f"{self.url} {call.path.rpartition('/')[2]}")
        return self.told[call.path][self.url]

    async def close(self) -> None:
        self.closed.append(self.url)


@pytest.fixture
def ask(tmp_path, monkeypatch) -> Callable[..., list[TextResult]]:
    """Ask two shards, the second of which is at the URLs given, that behave so."""
    monkeypatch.setattr(shard_client, "AsyncClient", Fake)

    def ask_them(
        behaviour: dict[str, tuple[float, Any]],
        k: int = 2,
        asked: dict[str, Any] | None = None,
        models: tuple[dict[str, Any], ...] = (SPLIT,),
        **options: Any,
    ) -> Any:
        (tmp_path / "map").write_text(json.dumps(models))
        Fake.asked, Fake.closed, Fake.counts = [], [], []
        Fake.behaviour = {"a": (0, response("a", 1, 3)), **behaviour}

        async def run() -> list[TextResult]:
            async with ShardedClient([["a"], list(behaviour)], tmp_path / "map", **options) as all_:
                return await all_.predict("x", k=k, **(asked or {}))

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
        results=[result_of(labels)],
    )  # fmt: skip


def ids(found: list[TextResult]) -> list[str]:
    return [label.id for label in found[0].labels]


def test_equal_scores_keep_the_order_of_the_shards(ask):
    assert ids(ask({"b": (0, response("b", 3, 3))}, k=3)) == ["a0", "b0", "b1"]
    assert Fake.asked == sorted(Fake.closed) == ["a", "b"]


@given(
    scores=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    cuts=st.sets(st.integers(1, 39), max_size=15),
    k=st.integers(1, 40),
)
def test_the_best_of_all_shards_are_the_best_of_one_index(scores, cuts, k):
    """Shards of any sizes, most scores tie: higher ones first, then smaller indices."""
    wanted = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    edges = [0, *sorted(cut for cut in cuts if cut < len(scores)), len(scores)]
    of_shards = [
        found_of([i for i in wanted if start <= i < stop][: min(k, stop - start)], scores)
        for start, stop in pairwise(edges)
    ]
    assert merged(of_shards, k) == found_of(wanted[:k], scores)


def found_of(indices: list[int], scores: list[int]) -> TextResult:
    labels = [ScoredLabel(id=f"L{i}", name="", score=scores[i], probability=None) for i in indices]
    return result_of(labels)


def result_of(labels: list[ScoredLabel]) -> TextResult:
    return TextResult(
        labels=labels, num_tokens=1, num_text_tokens=1, known_tokens=1, truncated=False, exact=True
    )


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


def known(digest: str, *include: str) -> KnownLabels:
    model = ModelReference(version=1, digest=digest)
    return KnownLabels(
        model=model, include=list(include), exclude=[], include_set=None, exclude_set=None
    )


KNOWN = "/v1/shard/known-labels"


def test_only_shards_that_have_an_included_label_are_asked_about_the_text(ask):
    Fake.told = {KNOWN: {"a": known("a"), "b": known("b", "L")}}
    assert ids(ask({"b": (0, response("b", 2))}, asked={"include": ["L"]})) == ["b0"]
    assert Fake.asked == [f"a {KNOWN[10:]}", f"b {KNOWN[10:]}", "b"]


def test_one_shard_is_asked_where_nothing_is_included(ask):
    Fake.told = {KNOWN: {"a": known("a"), "b": known("b")}}
    ask({"b": (0, response("b", 2))}, asked={"include": []})
    assert Fake.asked[2:] == ["a"]


def test_a_version_that_comes_between_the_questions(ask):
    Fake.told = {KNOWN: {"a": known("a"), "b": known("b", "L")}}
    with pytest.raises(MixedShardsError, match=r"versions 1 \(new\), which are no split"):
        ask({"b": (0, response("new", 2))}, asked={"include": ["L"]})
    Fake.told = {KNOWN: {"a": known("a"), "b": known("new", "L")}}
    with pytest.raises(MixedShardsError):
        ask({"b": (0, response("b", 2))}, asked={"include": ["L"]})
    vectors = LabelVectors(
        model=ModelReference(version=2, digest="new"),
        vectors=[LabelVector(id="b0", columns=[0], values=[1.0])],
    )
    Fake.told = {"/v1/shard/label-vectors": {"b": vectors}}
    with pytest.raises(MixedShardsError):
        ask({"b": (0, response("b", 9))}, k=1, asked={"explain": True})


@pytest.mark.parametrize("k", [0, 10])
def test_more_labels_than_all_shards_have(ask, k):
    with pytest.raises(RequestError, match=f"k is {k}; expected 1 to 9, the number of labels"):
        ask({"b": (0, response("b", 2))}, k=k)
    assert not Fake.asked


@pytest.mark.parametrize(("k", "counts"), [(4, [4, 4]), (5, [5, 4]), (9, [5, 4])])
def test_a_shard_is_asked_for_no_more_than_it_has(ask, k, counts):
    ask({"b": (0, response("b", 2))}, k=k)
    assert Fake.counts == counts


OLD = {"digest": "old", "shard_digests": ["a'", "b'"], "shard_sizes": [3, 7]}


def test_a_shard_is_asked_once_more_where_another_model_had_fewer_labels(ask):
    """Only then, and only that shard; the one that answers is not known before."""
    b = {"b": (0, response("b", 2))}
    assert ids(ask(b, k=3, models=(OLD, SPLIT))) == ["a0", "b0", "a1"]
    assert (Fake.asked, Fake.counts) == (["a", "b"], [3, 3])
    assert ids(ask(b, k=6, models=(OLD, SPLIT))) == ["a0", "b0", "a1"]
    assert (Fake.asked, Fake.counts) == (["a", "b", "a"], [3, 4, 5])
    Fake.told = {KNOWN: {"a": known("a"), "b": known("b")}}
    ask(b, k=6, models=(OLD, SPLIT), asked={"exclude": []})
    assert Fake.counts == [5, 4]  # the model is known by then


def test_a_model_with_fewer_labels_than_another(ask):
    with pytest.raises(RequestError, match="k is 10; expected 1 to 9, the number of labels"):
        ask({"b": (0, response("b", 2))}, k=10, models=(OLD, SPLIT))
    assert Fake.asked == ["a", "b"]


@pytest.mark.parametrize("wrong", [[["a"]], [["a"], ["b"], []], [["a"]] * 4])
def test_urls_of_another_number_of_shards(shards, wrong):
    with pytest.raises(ConfigError, match=r"got URLs of \d shards, expected those of 3"):
        ShardedClient(wrong, shards / "shards.json")


def test_problems_of_a_shard_are_told(shards, urls):
    async def ask_badly() -> None:
        async with ShardedClient(urls, shards / "shards.json") as client:
            await client.predict("x", scorer="nobody")

    with pytest.raises(ProblemError, match="nobody"):
        asyncio.run(ask_badly())
