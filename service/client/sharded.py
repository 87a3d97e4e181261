"""Asks the services of all shards of a model, and merges their answers exactly.

```python
async with ShardedClient([["http://a:8000"], ["http://b:8000"]], Path("shards/shards.json")) as all:
    (result,) = await all.predict("Duties on imports of olive oil", k=3)
```

Each shard answers with its exact best k, or with all its labels where it has fewer, so the best k
of these are the best k of all labels, ties included (see `longtail.models.edit.split_shards`). An
answer of all shards, or an error: there is nothing between.

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

from longtail.models.bundle.shard import SplitModel, read_map
from longtail.models.errors import ConfigError, RequestError
from longtail.models.labels.filters import KnownLabels, check_known
from longtail.models.scorers.reliability import merge_warnings
from longtail.service.client import calls
from longtail.service.client.calls import Call, ClientError, NoAnswerError, PredictOptions, Retry, T
from longtail.service.client.client import DEFAULT_RETRY, TIMEOUT_S, AsyncClient
from longtail.service.client.shard_consistency import MixedShardsError, check_alike
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.labels import NearLabel
from longtail.service.schemas.predict import AnswerWarning, PredictResponse, TextResult
from longtail.service.schemas.shards import KnownLabels as KnownAnswer


class _Answer(Protocol):
    """What any service answers."""

    @property
    def model(self) -> ModelReference: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)
Ask: TypeAlias = Callable[[AsyncClient], Coroutine[Any, Any, AnswerT]]
"""Asks a service something."""


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
        self._models = read_map(known)
        num_shards = len(self._models[-1].shard_digests)
        if len(urls) != num_shards or not all(urls):
            raise ConfigError(
                f"shards: got URLs of {sum(map(bool, urls))} shards, expected those of {num_shards}"
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
            options: As of `AsyncClient.predict`; `k` is at most the number of labels of all
                shards, and stored sets must be alike on the services of all.

        Raises:
            RequestError: There are fewer labels than k, or no shard has a label that is included or
                excluded.
            MixedShardsError: The shards serve versions that do not belong together, as while a new
                one is rolled out; ask again, or name a version that all have loaded.
            MixedSetsError: A stored set that is named has other labels for one shard than for
                another.
            NoAnswerError: A shard was too late.
            ClientError: A shard answered with a problem, as where it has more labels than the
                largest k of its service (`max_k`), and k is larger too; or it can't be reached.
        """
        k = options.get("k", 5)
        _check_k(k, self._models)
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
        filters, model = await self._filters(options)
        answers, model = await self._best(
            texts, k, {number: {**options, **own} for number, own in filters.items()}, model
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
        nearest = await self._nearest(results, owners, options, model)
        return [_with_nearest(result, nearest) for result in results]

    async def _best(
        self,
        texts: str | Sequence[str],
        k: int,
        options_of: Mapping[int, Mapping[str, Any]],
        model: SplitModel | None,
    ) -> tuple[dict[int, PredictResponse], SplitModel]:
        """Return the best labels of shards, k of each or all that it has, and whose they are.

        Where the model is not known before, each shard is asked for as many as it has in every
        model, and once more where it has more in the one that answered.

        Raises:
            RequestError: The model has fewer labels than k.
        """
        counts = _counts(k, self._models if model is None else [model])
        asks = {
            number: _predict(texts, {**own, "k": counts[number]})
            for number, own in options_of.items()
        }
        answers, model = await self._ask_some(asks, model)
        _check_k(k, [model])
        expected = _counts(k, [model])
        short = {i: own for i, own in options_of.items() if counts[i] < expected[i]}
        if short:
            more, _ = await self._best(texts, k, short, model)
            answers |= more
        return answers, model

    async def _filters(
        self, options: Mapping[str, Any]
    ) -> tuple[dict[int, dict[str, Any]], SplitModel | None]:
        """Return what is included and excluded of each shard that may answer, and of which model.

        Raises:
            RequestError: No shard has a label that is named.
            MixedSetsError: A set that is named is not the same for all shards.
        """
        asked = _given(options, "include", "exclude", "include_set", "exclude_set")
        if not asked:
            return {number: {} for number in range(len(self._shards))}, None
        call = calls.known_labels({**asked, **_given(options, "version")})
        answers, model = await self._ask_all(_do(call))
        for field in ("include_set", "exclude_set"):
            if field in asked:
                stored = [getattr(answer, field) for answer in answers.values()]
                check_alike(f"{field} {asked[field]!r}", stored)
        known = {number: _known_labels(answer) for number, answer in answers.items()}
        first = answers[0].include_set
        members = None if first is None else (asked["include_set"], first.label_count)
        check_known(
            list(known.values()), asked.get("include", ()), asked.get("exclude", ()), members
        )
        if "include" not in asked and members is None:
            return {number: {"exclude": each.exclude} for number, each in known.items()}, model
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
        return some or {0: filters[0]}, model

    async def _nearest(
        self,
        results: Sequence[TextResult],
        owners: Mapping[str, int],
        options: Mapping[str, Any],
        model: SplitModel,
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
            model,
        )
        vectors = [vector for answer in given.values() for vector in answer.vectors]
        content = {"vectors": [each.model_dump() for each in vectors], **version}
        answers, _ = await self._ask_all(_do(calls.nearest_labels(content)), model)
        most = answers[0].most
        return {
            vector.id: sorted(chain(*of_shards), key=lambda near: -near.similarity)[:most]
            for vector, *of_shards in zip(
                vectors, *(each.nearest for each in answers.values()), strict=True
            )
        }

    async def _ask_all(
        self, ask: Ask[AnswerT], model: SplitModel | None = None
    ) -> tuple[dict[int, AnswerT], SplitModel]:
        return await self._ask_some(dict.fromkeys(range(len(self._shards)), ask), model)

    async def _ask_some(
        self, asks: Mapping[int, Ask[AnswerT]], model: SplitModel | None
    ) -> tuple[dict[int, AnswerT], SplitModel]:
        """Return the answers of shards, and the model whose they are.

        Args:
            asks: What is asked of each, by its number, rising.
            model: The one that must answer; None: any.

        Raises:
            MixedShardsError: Versions answered that are not shards of one model, or of another one.
        """
        tasks = [asyncio.create_task(self._ask(self._shards[i], ask)) for i, ask in asks.items()]
        try:
            answers = dict(zip(asks, await asyncio.gather(*tasks), strict=True))
        finally:
            await _stop(tasks)
        came = {number: answer.model.digest for number, answer in answers.items()}
        for known in self._models if model is None else [model]:
            if all(known.shard_digests[number] == digest for number, digest in came.items()):
                return answers, known
        versions = ", ".join(
            f"{answer.model.version} ({answer.model.digest[:12]})" for answer in answers.values()
        )
        raise MixedShardsError(
            f"the shards answered by the versions {versions}, which are no split of one model; ask "
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
    update: dict[str, Any] = {"labels": best, "exact": all(result.exact for result in found)}
    if any(result.warnings for result in found):
        update["warnings"] = _merged_warnings(found, [label.id for label in best])
    return found[0].model_copy(update=update)


def _merged_warnings(found: Sequence[TextResult], label_ids: list[str]) -> list[AnswerWarning]:
    """Return the warnings of the shards about the labels that were kept."""
    merged = merge_warnings([result.warnings for result in found], label_ids)
    return [AnswerWarning(code=x.code, detail=x.detail, label_ids=[*x.label_ids]) for x in merged]


def _check_k(k: int, models: Sequence[SplitModel]) -> None:
    """Refuse more labels than any of some models has.

    Raises:
        RequestError: They are more, or less than 1.
    """
    most = max(model.num_labels for model in models)
    if not 1 <= k <= most:
        raise RequestError(f"k is {k}; expected 1 to {most}, the number of labels")


def _counts(k: int, models: Sequence[SplitModel]) -> list[int]:
    """Return how many labels each shard has in all of some models, k at most."""
    sizes = zip(*(model.shard_sizes for model in models), strict=True)
    return [min(k, *of_shard) for of_shard in sizes]


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
