"""What becomes of the fields of a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from longtail.models.errors import RequestError
from longtail.models.options import RankingOptions
from longtail.service.engine.queries import Query, query_of
from longtail.service.schemas.base import Options


def test_a_k_that_nobody_asked_for_is_at_most_the_number_of_labels(open_client):
    asked = Query(("a",), RankingOptions(k=9), has_own_k=False)
    with open_client(max_k=20) as client:
        engine = client.app.state.service.engine
        answer = asyncio.run(engine.predict(asked))
        with pytest.raises(RequestError, match="k is 9"):
            asyncio.run(engine.predict(replace(asked, has_own_k=True)))
    assert len(answer.predictions[0].labels) == 8


def test_a_query_knows_whether_its_k_was_asked_for():
    found = [query_of(Options(**given), ["a"]) for given in ({}, {"k": 5})]
    assert [(query.options.k, query.has_own_k) for query in found] == [(5, False), (5, True)]
