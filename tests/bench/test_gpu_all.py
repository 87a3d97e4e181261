"""The script for GPU machines: steps that fail or take too long are noted, and figures are kept."""

import argparse
import json
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import gpu_all
from gpu_all import Step, last_steps, measured, steps


def test_a_step_gives_what_it_writes_and_its_last_lines(tmp_path):
    record = tmp_path / "figures.json"
    code = f"import pathlib; pathlib.Path({str(record)!r}).write_text('[7]'); print('said')"
    found = measured(Step("good", 60, ["-c", code], record), 60, tmp_path)
    assert (found["end"], found["figures"], found["last lines"]) == ("done", [7], "said\n")
    found = measured(Step("bad", 60, ["-c", "raise SystemExit(3)"]), 60, tmp_path)
    assert (found["end"], found["figures"]) == ("failed with exit status 3", None)


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    alive = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(8); pathlib.Path({str(alive)!r}).touch()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert measured(Step("slow", 2, ["-c", code]), 60, tmp_path)["end"] == "ended after 2 s"
    time.sleep(9)
    assert not alive.exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_steps_name_files_that_there_are(device, tmp_path):
    options = argparse.Namespace(quick=device == "cpu", device=device, data=tmp_path)
    found = [*steps(options, tmp_path), *last_steps(options, tmp_path, 200)]
    names = [step.name for step in found]
    assert names[-5:] == ["searches", "demo", "service under load", "training", "dev table"]
    assert (names[0] == "gpu tests") == (device == "cuda")
    assert sum(step.most_s for step in found[:-2]) <= 7.5 * 60  # some time is left for training
    for word in (word for step in found for word in step.command):
        if word.endswith((".py", ".yaml")) or word.startswith("tests/"):
            assert (gpu_all.ROOT / word).exists(), word


def test_the_record_is_written_after_each_step(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_all, "begin", lambda parser: parser.parse_args())
    record, seen = tmp_path / "all.json", []
    code = f"import pathlib; print(pathlib.Path({str(record)!r}).exists())"

    def two(*_: object) -> list[Step]:
        seen.append(record.exists())
        return [Step("first", 60, ["-c", code]), Step("second", 60, ["-c", code])]

    monkeypatch.setattr(gpu_all, "steps", two)
    monkeypatch.setattr(gpu_all, "last_steps", lambda *_: [Step("last", 60, ["-c", "1 / 0"])])
    monkeypatch.setattr(sys, "argv", ["gpu_all.py", "--json", str(record), "--minutes", "5"])
    assert gpu_all.main() == 1
    kept = json.loads(record.read_text("utf-8"))["figures"]["steps"]
    assert [each["last lines"] for each in kept[:2]] == ["False\n", "True\n"]
    assert kept[2]["end"] == "failed with exit status 1"


def test_searches_of_both_indexes_are_recorded(tmp_path):
    """The step of the script itself, at sizes of which one is corrected by a tree of two levels."""
    options = argparse.Namespace(quick=True, device="cpu", data=tmp_path)
    step = next(each for each in steps(options, tmp_path) if each.name == "searches")
    sizes = step.command.index("--sizes")
    small = Step(step.name, 60, [*step.command[:sizes], "--sizes", "4", "300",
                                 *step.command[sizes + 3 :]], step.record)  # fmt: skip
    found = measured(small, 60, tmp_path)
    assert found["end"] == "done", found["last lines"]
    rows = found["figures"]["figures"]["rows"]
    for what in ("torch, exact top 10", "faiss, exact top", "corrected by the tree"):
        assert any(row["what"].startswith(what) for row in rows), what
    assert all("ms" in row["figure"] for row in rows if row["what"].startswith("torch"))


@pytest.mark.slow
def test_all_steps_run_on_a_cpu(tmp_path):
    """Half a minute to two on two cores: the demo is trained, served, trained again, evaluated."""
    record = tmp_path / "all.json"
    command = ["tests/bench/gpu_all.py", "--device", "cpu", "--quick", "--minutes", "20"]
    found = measured(
        Step("all", 900, [*command, "--patience", "4", "--json", str(record)], record),
        900,
        tmp_path,
    )
    assert found["end"] == "done", found["last lines"]
    ended = {each["step"]: each for each in found["figures"]["figures"]["steps"]}
    names = ["searches", "demo", "service under load", "training", "dev table"]
    assert [*ended] == names and {each["end"] for each in ended.values()} == {"done"}
    service = {
        x["what"]: x["figure"] for x in ended["service under load"]["figures"]["figures"]["swaps"]
    }
    assert (service["swaps"], service["failures"], service["answers of mixed versions"]) == (
        2,
        0,
        0,
    )
    assert (
        ended["dev table"]["figures"]["figures"]["scorers"]["sparse"]["all"]["values"]["P@5"] > 0.3
    )
