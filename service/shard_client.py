"""Asks the services of all shards of a model, and merges their answers exactly.

```python
async with ShardedClient([["http://a:8000"], ["http://b:8000"]], Path("shards/shards.json")) as all:
    (result,) = await all.predict("Duties on imports of olive oil", k=3)
```

Each shard answers with its exact best k, so the best k of these are the best k of all labels, ties
included (see `models.sharding`). An answer of all shards, or an error: there is nothing between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack

from models.errors import ConfigError, RequestError
from models.shard import read_map
from service.client import DEFAULT_RETRY, TIMEOUT_S, AsyncClient
from service.client_calls import ClientError, NoAnswerError, Retry, Version
from service.schemas import PredictResponse, TextResult


class MixedShardsError(ClientError):
    """The shards answered by versions that do not belong together."""


class ShardedOptions(TypedDict, total=False):
    """What to answer about texts; see `service.schemas.Options`."""

    scorer: str
    threshold: float
    correction: Literal["none", "prior", "tree"]
    tail_dial: float
    version: Version


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
        self, texts: str | Sequence[str], *, k: int = 5, **options: Unpack[ShardedOptions]
    ) -> list[TextResult]:
        """Return the best labels of one text or several, as many as one request may have.

        Args:
            texts: None of them blank.
            k: Labels wanted a text, from 1 to the number of labels of the smallest shard.
            options: As of `AsyncClient.predict`.

        Raises:
            RequestError: A shard has fewer labels than k.
            MixedShardsError: The shards serve versions that do not belong together, as while a new
                one is rolled out; ask again, or name a version that all have loaded.
            NoAnswerError: A shard was too late.
            ClientError: A shard answered with a problem, or can't be reached.
        """
        if not 1 <= k <= self._most_k:
            raise RequestError(f"k is {k}; wanted 1 to {self._most_k}, the labels of a shard")
        given: dict[str, Any] = {"k": k, "timeout_s": self._timeout_s, **options}
        try:
            async with asyncio.timeout(self._timeout_s):
                answers = await self._ask_all(texts, given)
        except TimeoutError as error:
            raise NoAnswerError(
                f"a shard did not answer within {self._timeout_s:g} s; are all of them up?"
            ) from error
        self._check(answers)
        return [merged(found, k) for found in zip(*(x.results for x in answers), strict=True)]

    async def _ask_all(
        self, texts: str | Sequence[str], given: dict[str, Any]
    ) -> list[PredictResponse]:
        tasks = [asyncio.create_task(self._ask(each, texts, given)) for each in self._shards]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await _stop(tasks)

    async def _ask(
        self, clients: Sequence[AsyncClient], texts: str | Sequence[str], given: dict[str, Any]
    ) -> PredictResponse:
        """Return the first good answer of a shard's services; the error of the last, else."""
        tasks: set[asyncio.Task[PredictResponse]] = set()
        everything: list[asyncio.Task[PredictResponse]] = []
        left = iter(clients)
        error: ClientError | None = None
        try:
            while True:
                if (client := next(left, None)) is not None:
                    everything.append(asyncio.create_task(client.predict(texts, **given)))
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

    def _check(self, answers: Sequence[PredictResponse]) -> None:
        """Refuse answers of versions that are not the shards of one model.

        Raises:
            MixedShardsError: They are not.
        """
        digests = tuple(answer.model.digest for answer in answers)
        if digests not in self._known:
            came = ", ".join(
                f"{answer.model.version} ({answer.model.digest[:12]})" for answer in answers
            )
            raise MixedShardsError(
                f"the shards answered by the versions {came}, which are no split of one model; ask "
                "again when all serve the same, or name a version that all have loaded"
            )


def merged(found: Sequence[TextResult], k: int) -> TextResult:
    """Return the best k labels of what the shards found of one text, in the order of the shards.

    Labels of an earlier shard have smaller indices, so a stable sort keeps the order of ties.
    """
    labels = [label for result in found for label in result.labels]
    best = sorted(labels, key=lambda label: -label.score)[:k]
    return found[0].model_copy(
        update={"labels": best, "exact": all(result.exact for result in found)}
    )


async def _stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
