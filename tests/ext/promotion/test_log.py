"""The log of promotions: lines that stay, torn ones that go, and what is left to finish."""

import pytest

from longtail.ext.promotion.log import PromotionLog

PAIR = {"candidate_digest": "b", "current_digest": "a"}


@pytest.fixture
def log(tmp_path):
    return PromotionLog(tmp_path / "registry" / "promotions.jsonl")


def test_a_line_that_was_not_written_to_its_end_is_replaced_by_the_next(log):
    log.append("judged", PAIR)
    with log.path.open("ab") as file:
        file.write(b'{"at": "2030-01-01", "ev')
    assert len(log.entries()) == 1
    log.append("canary", PAIR)
    assert [entry["event"] for entry in log.entries()] == ["judged", "canary"]


def test_only_a_canary_that_is_not_done_is_left_to_finish(log):
    def left() -> list[str]:
        return [entry["event"] for entry in log.unfinished("b")]

    log.append("judged", PAIR)
    assert left() == []
    log.append("canary", PAIR)
    log.append("canary", PAIR | {"candidate_digest": "other"})
    log.append("done", PAIR | {"candidate_digest": "other"})
    assert left() == ["canary"]
    log.append("decided", PAIR | {"promote": False})
    assert left() == ["canary", "decided"]
    log.append("done", PAIR)
    assert left() == []
