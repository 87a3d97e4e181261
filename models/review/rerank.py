"""The route `/rerank` of Text Embeddings Inference: a cross-encoder behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, FiniteFloat, TypeAdapter

from longtail.models.review.endpoint import Endpoint
from longtail.models.review.reviewer import ReviewError

_MAX_TEXTS = 32
"""Of a request; the server's own default limit."""


class _Ranked(BaseModel):
    index: int
    score: FiniteFloat


_ANSWER = TypeAdapter(list[_Ranked])


class RerankReviewer:
    """Sends the text as the query, and candidates as the texts to rank."""

    def __init__(self, address: str, model: str, key: str) -> None:
        """Prepare; `model` only names the one that the server runs."""
        self.name = f"rerank {model}".strip()
        self._endpoint = Endpoint(address, "/rerank", key)

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        """Return the raw scores of the server's model (see `Reviewer.scores`)."""
        found: list[float] = []
        for start in range(0, len(candidates), _MAX_TEXTS):
            found += await self._scores(text, candidates[start : start + _MAX_TEXTS])
        return found

    async def _scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        body = {"query": text, "texts": candidates, "raw_scores": True, "truncate": True}
        answer = await self._endpoint.ask(body, _ANSWER)
        score_of = {each.index: each.score for each in answer}
        if len(answer) != len(candidates) or sorted(score_of) != [*range(len(candidates))]:
            raise ReviewError(
                f"{self.name}: {len(answer)} scores, of {len(score_of)} different indices; "
                f"expected 0 to {len(candidates) - 1}, each once"
            )
        return [score_of[index] for index in range(len(candidates))]

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()
