"""Records of measurements: figures beside what it takes to repeat them."""

from datetime import date

from longtail.models.processor import FLAGS
from longtail.training.evaluation.record import make_record


def test_a_record_says_what_measured_when_and_where(tmp_path):
    record = make_record({"P@1": 0.5}, seeds=range(2), command="longtail evaluate x")
    assert list(record) == ["command", "commit", "date", "processor", "seeds", "figures"]
    assert record["command"] == "longtail evaluate x"
    assert date.fromisoformat(record["date"])
    assert record["processor"]["cores"] >= 1
    assert set(record["processor"]["flags"]) <= set(FLAGS)
    assert (record["seeds"], record["figures"]) == ([0, 1], {"P@1": 0.5})
