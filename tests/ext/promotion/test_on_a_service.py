"""A canary on a running service, over HTTP: its own counters decide."""

from contextlib import suppress

import pytest

from longtail.ext.promotion.canary import CanaryWatch
from longtail.ext.promotion.log import PromotionLog
from longtail.ext.promotion.rules import PromotionRules
from longtail.ext.promotion.verdict import Pair
from longtail.models.errors import RequestError
from longtail.service.client.calls import ProblemError
from longtail.service.client.client import Client

RULES = PromotionRules(minutes=1.0, share=0.4, min_requests=20)


@pytest.fixture
def pair(registry):
    digests = [registry.open(version).manifest.digest for version in (1, 2)]
    return Pair(1, 2, *digests)


@pytest.fixture
def log(tmp_path):
    return PromotionLog(tmp_path / "promotions.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("is_failing", [False, True])
def test_a_good_canary_becomes_the_default_and_a_failing_one_goes(
    open_server, make_loader, fake_predictor, keys, registry, pair, log, is_failing
):
    class OldFails(fake_predictor):
        def __init__(self, bundle):
            super().__init__(bundle)
            self.fails = is_failing and bundle.manifest.metrics["retrieval"]["p_at_1"] == 0.5

        def predict_batch(self, batch, options):
            if self.fails and "work" in batch.texts:
                raise RequestError("it fails at work")
            return super().predict_batch(batch, options)

    key, entry = keys[0]
    time = [0.0]
    loader = make_loader(predictor_class=OldFails)
    with open_server(loader, admin_keys=entry) as url, Client(url, key=key) as client:

        def work(seconds: float) -> None:
            time[0] += seconds
            for _ in range(30):
                with suppress(ProblemError):
                    client.predict("work")

        watch = CanaryWatch(client, log, pair, RULES, now=lambda: time[0], sleep=work)
        decision = watch.run(["a", "bb"])
        served = {each.version: each.traffic_share for each in client.models().models}
    assert decision.promote != is_failing
    assert served == ({1: 0.0, 2: 1.0} if is_failing else {1: 1.0, 2: 0.0})
    assert registry.current() == (2 if is_failing else 1)
    assert time[0] < 60.0 or not is_failing
    assert [entry["event"] for entry in log.entries()] == ["canary", "decided", "done"]
