"""What a run writes down of its losses, its time and its memory."""

import json

import pytest

from longtail.training.runtime.run_log import ProgressLog, progress_path, read_progress


@pytest.fixture
def checkpoints(tmp_path):
    return tmp_path / "classifier"


def note(checkpoints, steps, *, done, total):
    with ProgressLog(checkpoints, done, total) as log:
        for step in steps:
            log.note(step, 1 / step, 0.5)
    return [point.step for point in read_progress(progress_path(checkpoints))]


def test_a_resumed_stage_has_no_step_twice_and_its_time_goes_on(checkpoints):
    note(checkpoints, range(1, 6), done=0, total=8)
    path = progress_path(checkpoints)
    lines = [json.loads(line) | {"seconds": 100.0} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 6, "lo')
    assert note(checkpoints, range(4, 9), done=3, total=8) == list(range(1, 9))
    seconds = [point.seconds for point in read_progress(path)]
    assert seconds[:3] == [100.0] * 3
    assert min(seconds[3:]) >= 100.0
