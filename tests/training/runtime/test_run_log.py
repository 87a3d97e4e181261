"""What a run writes down of its losses, its time and its memory."""

import json

import pytest

from longtail.training.runtime.run_log import (
    STAGES_NAME,
    ProgressLog,
    progress_path,
    read_progress,
    read_stage_costs,
    stage_cost,
)


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


def test_the_costs_of_a_stage_add_up_over_its_sessions(tmp_path):
    for stage in ("sparse", "linear", "sparse"):
        with stage_cost(tmp_path, stage):
            pass
    sparse, linear = read_stage_costs(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / STAGES_NAME).read_text().splitlines()]
    assert (sparse.stage, sparse.num_sessions, linear.num_sessions) == ("sparse", 2, 1)
    assert sparse.wall_s == lines[0]["wall_s"] + lines[2]["wall_s"]
    assert sparse.is_done
