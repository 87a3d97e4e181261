"""The simulation of shards against what can be said of it without one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The script, which is no part of a package."""
    path = Path(__file__).with_name("shard_fanout.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)  # for what the scripts share
        spec.loader.exec_module(module)
    return module


LATENCIES = np.array([1.0] * 9 + [10.0])


@pytest.mark.parametrize("fanout", [1, 4, 16])
def test_a_query_waits_for_the_slowest_shard(bench, fanout):
    found = bench.simulate(LATENCIES, fanout, None)
    assert set(found) <= {1.0, 10.0}
    assert np.mean(found == 1) == pytest.approx(0.9**fanout, abs=0.02)


def test_a_hedged_request_takes_the_first_of_two_answers(bench):
    found = bench.simulate(LATENCIES, 1, 2.0)
    assert set(found) == {1.0, 3.0, 10.0}  # at once; by the second machine; by neither
    assert np.mean(found == 3) == pytest.approx(0.1 * 0.9, abs=0.01)
    assert np.mean(found == 10) == pytest.approx(0.1 * 0.1, abs=0.01)


def test_a_report_has_a_row_for_each_number_of_shards(bench, tmp_path, monkeypatch, capsys):
    (tmp_path / "latencies").write_text("1\n2\n3\n")
    given = ["shard_fanout.py", "--latencies", str(tmp_path / "latencies")]
    monkeypatch.setattr("sys.argv", [*given, "--output", str(tmp_path / "out")])
    monkeypatch.setattr(bench, "NUM_DRAWS", 100)
    bench.main()
    assert capsys.readouterr().out.count("\n| ") == 1 + len(bench.FANOUTS)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".png"}


def test_latencies_are_measured(bench):
    found = bench.measure(50, 4, 3, bench.CLOCKS["cpu"])
    assert found.shape == (3,)
    assert (found >= 0).all()
