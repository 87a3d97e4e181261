"""Asks the services of all shards of a model, and merges their answers exactly.

```python
async with ShardedClient([["http://a:8000"], ["http://b:8000"]], Path("shards/shards.json")) as all:
    (result,) = await all.predict("Duties on imports of olive oil", k=3)
```

Each shard answers with its exact best k, so the best k of these are the best k of all labels, ties
included (see `models.sharding`). An answer of all shards, or an error: there is nothing between.

Before that, where labels are included or excluded, all shards are asked which of them they have;
and after it, where labels are explained, which labels are like them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, TypeVar, Unpack

from models.errors import ConfigError, RequestError
from models.selection import KnownLabels, check_known
from models.shard import read_map
from service import client_calls as calls
from service.client import DEFAULT_RETRY, TIMEOUT_S, AsyncClient
from service.client_calls import Call, ClientError, NoAnswerError, PredictOptions, Retry, T
from service.schemas import ModelReference, NearLabel, PredictResponse, TextResult
from service.shard_schemas import KnownLabels as KnownAnswer


class _Answer(Protocol):
    """What any service answers."""

    @property
    def model(self) -> ModelReference: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)
_Digests: TypeAlias = tuple[str, ...]
"""Of the bundles of all shards of a model."""
Ask: TypeAlias = Callable[[AsyncClient], Coroutine[Any, Any, AnswerT]]
"""Asks a service something."""


class MixedShardsError(ClientError):
    """The shards answered by versions that do not belong together."""


class ShardedClient:
    """Asks all shards at once; belongs to one event loop. Close it, or use it as a context."""

    def __init__(
        self,
        urls: Sequence[Sequence[str]],
        known: Path,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        hedge_after_s: float | None = None,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            urls: Of the services of each shard, in the order of the shards. The first of a shard is
                asked; the next one where that is away, or late and requests are hedged.
            known: `shards.json`, as `longtail registry split` wrote it.
            key: A key to ask with.
            timeout_s: Seconds in which all shards must have answered.
            hedge_after_s: Seconds after which a shard that has not answered is asked once more, by
                its next URL; the first answer counts. About the 95th percentile of a shard's
                latency is usual. None: never.
            retry: What to do where the only service of a shard is busy or away; a shard of several
                goes on to its next one instead.

        Raises:
            BundleError: The file can't be read.
            ConfigError: There is not at least one URL for each shard.
        """
        models = read_map(known)
        self._known = {model.shard_digests for model in models}
        self._most_k = min(size for model in models for size in model.shard_sizes)
        num_shards = len(models[-1].shard_digests)
        if len(urls) != num_shards or not all(urls):
            raise ConfigError(
                f"shards: URLs of {sum(map(bool, urls))} shards came, wanted those of {num_shards}"
            )
        self._timeout_s = timeout_s
        self._hedge_after_s = hedge_after_s
        self._shards = [
            [
                AsyncClient(
                    url, key=key, timeout_s=timeout_s,
                    retry=retry if len(of_shard) == 1 else Retry(max_attempts=1),
                )
                for url in of_shard
            ]
            for of_shard in urls
        ]  # fmt: skip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        async with AsyncExitStack() as stack:
            for clients in self._shards:
                for client in clients:
                    stack.push_async_callback(client.close)

    async def predict(
        self, texts: str | Sequence[str], **options: Unpack[PredictOptions]
    ) -> list[TextResult]:
        """Return the best labels of one text or several, as many as one request may have.

        Args:
            texts: None of them blank.
            options: As of `AsyncClient.predict`; `k` is at most the number of labels of the
                smallest shard, and stored sets must be the same for all shards.

        Raises:
            RequestError: A shard has fewer labels than k, or no shard has a label that is included
                or excluded.
            MixedShardsError: The shards serve versions that do not belong together, as while a new
                one is rolled out; ask again, or name a version that all have loaded.
            NoAnswerError: A shard was too late.
            ClientError: A shard answered with a problem, or can't be reached.
        """
        k = options.get("k", 5)
        if not 1 <= k <= self._most_k:
            raise RequestError(f"k is {k}; wanted 1 to {self._most_k}, the labels of a shard")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._predict(texts, k, {"timeout_s": self._timeout_s, **options})
        except TimeoutError as error:
            raise NoAnswerError(
                f"a shard did not answer within {self._timeout_s:g} s; are all of them up?"
            ) from error

    async def _predict(
        self, texts: str | Sequence[str], k: int, options: Mapping[str, Any]
    ) -> list[TextResult]:
        filters, digests = await self._filters(options)
        answers, digests = await self._ask_some(
            {number: _predict(texts, {**options, **own}) for number, own in filters.items()},
            digests,
        )
        found = list(zip(*(each.results for each in answers.values()), strict=True))
        results = [merged(each, k) for each in found]
        if not options.get("explain"):
            return results
        owners = {
            label.id: number
            for of_text in found
            for number, result in zip(answers, of_text, strict=True)
            for label in result.labels
        }
        nearest = await self._nearest(results, owners, options, digests)
        return [_with_nearest(result, nearest) for result in results]

    async def _filters(
        self, options: Mapping[str, Any]
    ) -> tuple[dict[int, dict[str, Any]], _Digests | None]:
        """Return what is included and excluded of each shard that may answer, and who said so.

        Raises:
            RequestError: No shard has a label that is named.
        """
        asked = _given(options, "include", "exclude", "include_set")
        if not asked:
            return {number: {} for number in range(len(self._shards))}, None
        call = calls.known_labels({**asked, **_given(options, "version")})
        answers, digests = await self._ask_all(_do(call))
        known = {number: _known_labels(answer) for number, answer in answers.items()}
        first = answers[0].include_set
        members = None if first is None else (asked["include_set"], first.label_count)
        check_known(
            list(known.values()), asked.get("include", ()), asked.get("exclude", ()), members
        )
        if "include" not in asked and members is None:
            return {number: {"exclude": each.exclude} for number, each in known.items()}, digests
        filters: dict[int, dict[str, Any]] = {
            number: {
                "include": each.include,
                "exclude": each.exclude,
                "include_set": asked["include_set"] if each.num_of_include_set else None,
            }
            for number, each in known.items()
        }
        some = {
            number: own for number, own in filters.items() if own["include"] or own["include_set"]
        }
        return some or {0: filters[0]}, digests

    async def _nearest(
        self,
        results: Sequence[TextResult],
        owners: Mapping[str, int],
        options: Mapping[str, Any],
        digests: _Digests,
    ) -> dict[str, list[NearLabel]]:
        """Return the labels of all shards that are nearest to each label that was found."""
        ids_of: dict[int, list[str]] = {}
        for label_id in dict.fromkeys(x.id for result in results for x in result.labels):
            ids_of.setdefault(owners[label_id], []).append(label_id)
        if not ids_of:
            return {}
        version = _given(options, "version")
        given, _ = await self._ask_some(
            {
                number: _do(calls.label_vectors({"ids": own, **version}))
                for number, own in ids_of.items()
            },
            digests,
        )
        vectors = [vector for answer in given.values() for vector in answer.vectors]
        content = {"vectors": [each.model_dump() for each in vectors], **version}
        answers, _ = await self._ask_all(_do(calls.nearest_labels(content)), digests)
        most = answers[0].most
        return {
            vector.id: sorted(chain(*of_shards), key=lambda near: -near.similarity)[:most]
            for vector, *of_shards in zip(
                vectors, *(each.nearest for each in answers.values()), strict=True
            )
        }

    async def _ask_all(
        self, ask: Ask[AnswerT], digests: _Digests | None = None
    ) -> tuple[dict[int, AnswerT], _Digests]:
        return await self._ask_some(dict.fromkeys(range(len(self._shards)), ask), digests)

    async def _ask_some(
        self, asks: Mapping[int, Ask[AnswerT]], digests: _Digests | None
    ) -> tuple[dict[int, AnswerT], _Digests]:
        """Return the answers of shards, and the digests of all shards of the model.

        Args:
            asks: What is asked of each, by its number, rising.
            digests: Of the model that must answer; None: of any.

        Raises:
            MixedShardsError: Versions answered that are not shards of one model, or of another one.
        """
        tasks = [asyncio.create_task(self._ask(self._shards[i], ask)) for i, ask in asks.items()]
        try:
            answers = dict(zip(asks, await asyncio.gather(*tasks), strict=True))
        finally:
            await _stop(tasks)
        for known in self._known if digests is None else [digests]:
            if all(known[number] == answer.model.digest for number, answer in answers.items()):
                return answers, known
        came = ", ".join(
            f"{answer.model.version} ({answer.model.digest[:12]})" for answer in answers.values()
        )
        raise MixedShardsError(
            f"the shards answered by the versions {came}, which are no split of one model; ask "
            "again when all serve the same, or name a version that all have loaded"
        )

    async def _ask(self, clients: Sequence[AsyncClient], ask: Ask[AnswerT]) -> AnswerT:
        """Return the first good answer of a shard's services; the error of the last, else."""
        tasks: set[asyncio.Task[AnswerT]] = set()
        everything: list[asyncio.Task[AnswerT]] = []
        left = iter(clients)
        error: ClientError | None = None
        try:
            while True:
                if (client := next(left, None)) is not None:
                    everything.append(asyncio.create_task(ask(client)))
                    tasks.add(everything[-1])
                elif not tasks:
                    assert error is not None
                    raise error
                wait_s = self._hedge_after_s if client is not None else None
                done, tasks = await asyncio.wait(
                    tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    try:
                        return task.result()
                    except ClientError as failure:
                        error = failure
        finally:
            await _stop(everything)


def merged(found: Sequence[TextResult], k: int) -> TextResult:
    """Return the best k labels of what the shards found of one text, in the order of the shards.

    Labels of an earlier shard have smaller indices, so a stable sort keeps the order of ties.
    """
    labels = [label for result in found for label in result.labels]
    best = sorted(labels, key=lambda label: -label.score)[:k]
    return found[0].model_copy(
        update={"labels": best, "exact": all(result.exact for result in found)}
    )


def _predict(
    texts: str | Sequence[str], options: Mapping[str, Any]
) -> Callable[[AsyncClient], Coroutine[Any, Any, PredictResponse]]:
    return lambda client: client.predict(texts, **options)


def _do(call: Call[T]) -> Callable[[AsyncClient], Coroutine[Any, Any, T]]:
    return lambda client: client.do(call)


def _given(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


def _known_labels(answer: KnownAnswer) -> KnownLabels:
    members = answer.include_set
    return KnownLabels(
        tuple(answer.include), tuple(answer.exclude), 0 if members is None else members.known
    )


def _with_nearest(result: TextResult, nearest: Mapping[str, list[NearLabel]]) -> TextResult:
    """Return labels whose explanations have the nearest labels of all shards."""
    labels = [
        label.model_copy(
            update={
                "explanation": label.explanation
                and label.explanation.model_copy(update={"nearest": nearest[label.id]})
            }
        )
        for label in result.labels
    ]
    return result.model_copy(update={"labels": labels})


async def _stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
