"""Whether a machine is busy, which way its processor takes, and that every benchmark says so."""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from pathlib import Path

import machine
import pytest

from longtail.models.processor import Processor

FOLDER = Path(__file__).parent
IDLE, BUSY = [100, 0, 50, 800, 20, 0, 0, 0], [150, 30, 70, 880, 20, 0, 0, 0]


def stat_file(path: Path, times: list[int]) -> Path:
    path.write_text(f"cpu  {' '.join(map(str, times))} 0 0\ncpu0 1 2 3\n")
    return path


@pytest.mark.parametrize(("after", "share"), [(BUSY, 100 / 180), ([100, 0, 50, 990, 30], 0.0)])
def test_cores_that_others_keep_busy_are_those_that_are_not_idle(
    tmp_path, monkeypatch, after, share
):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    stat = stat_file(tmp_path / "stat", IDLE)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        stat_file(stat, after)

    assert machine.busy_cores(stat, sleep) == pytest.approx(4 * share)
    assert slept == [1.0]


def test_where_the_system_does_not_tell_nothing_is_said(tmp_path):
    assert machine.busy_cores(tmp_path / "none", lambda _: None) is None
    stat = stat_file(tmp_path / "stat", IDLE)
    assert machine.busy_cores(stat, lambda _: None) is None  # no time has passed


@pytest.mark.parametrize(
    ("flags", "limits", "way"),
    [
        (("avx2", "avx512f", "avx512_bf16", "amx_bf16"), {}, "AMX, bfloat16"),
        (("avx2", "avx512f", "avx512_bf16"), {}, "AVX-512, bfloat16"),
        (("avx2", "avx512f"), {}, "AVX-512, float32"),
        (("avx2",), {}, "AVX2, float32"),
        ((), {}, "unknown"),
        (("avx2", "avx512f"), {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "AVX2 (imitated)"),
        (("avx2", "avx512f"), {"ATEN_CPU_CAPABILITY": "avx2"}, "AVX2 (imitated)"),
    ],
)
def test_the_way_follows_from_flags_and_what_is_set(flags, limits, way):
    assert machine.way_of(Processor("P", flags, 2), limits) == way


@pytest.mark.parametrize(
    ("busy", "words"),
    [(0.05, "; idle"), (1.26, "BUSY: others keep 1.3 cores busy"), (None, "can't be told")],
)
def test_a_benchmark_says_first_what_it_runs_on(capsys, monkeypatch, busy, words):
    found = machine.Machine(
        Processor("AMD EPYC", ("avx2",), 2), "AVX2, float32", {"OMP_NUM_THREADS": "1"}, busy
    )
    monkeypatch.setattr(sys, "argv", ["bench", "--n", "3"])
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    assert machine.begin(parser, lambda: found).n == 3
    first, second = capsys.readouterr().err.splitlines()
    assert first == "processor: AMD EPYC, 2 cores, avx2"
    assert second.startswith("way taken: AVX2, float32; set: OMP_NUM_THREADS=1; ")
    assert words in second


def test_all_processes_get_the_same_rules_for_threads(monkeypatch):
    environ: dict[str, str] = {"OMP_NUM_THREADS": "7", "HOME": "/"}
    monkeypatch.setattr("os.environ", environ)
    machine.same_threads(2)
    assert {environ[name] for name in machine.THREADS} == {"2"}
    assert environ["OMP_WAIT_POLICY"] == "PASSIVE"


NOT_MEASURING = {"bundle_fuzz", "demo_slice", "faulty_service", "learning_loop_picture"}
PROGRAMS = [
    x
    for x in sorted(FOLDER.glob("*.py"))
    if x.stem != "__main__" and "\nif __name__ ==" in x.read_text("utf-8")
]
MEASURING = [path for path in PROGRAMS if path.stem not in NOT_MEASURING]


@pytest.mark.parametrize("path", MEASURING, ids=lambda path: path.stem)
def test_every_benchmark_says_so(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert "begin" in calls
    assert "parser.parse_args" not in calls


def test_the_list_names_every_program_and_what_it_measures():
    listed = runpy.run_path(str(FOLDER / "__main__.py"))["benchmarks"]()
    assert {path.name for path in PROGRAMS} <= {*listed}
    assert all(len(what) > 20 for what in listed.values())
