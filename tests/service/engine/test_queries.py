"""What becomes of the fields of a request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from longtail.models.errors import RequestError
from longtail.models.options import RankingOptions
from longtail.service.engine.queries import Query


def test_a_k_that_nobody_asked_for_is_at_most_the_number_of_labels(open_client):
    asked = Query(("a",), RankingOptions(k=9), has_own_k=False)
    with open_client(max_k=20) as client:
        engine = client.app.state.service.engine
        answer = asyncio.run(engine.predict(asked))
        with pytest.raises(RequestError, match="k is 9"):
            asyncio.run(engine.predict(replace(asked, has_own_k=True)))
    assert len(answer.predictions[0].labels) == 8
