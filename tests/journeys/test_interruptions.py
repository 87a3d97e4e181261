"""Commands that are stopped, run again, run twice at a time, or have no room or no rights."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail.models.errors import ConfigError
from longtail.models.files.outputs import held

NUM_LINES = 1100
ROOT = Path(longtail.__file__).parents[1]
PREDICT = ("predict", "--input", "many.jsonl", "--output", "out", "-k", "2")
# Sends itself a signal when it has answered two chunks.
STOPPED = """
import os, signal, sys
import longtail
from longtail.service.offline import predict
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where nohup started us
number = int(sys.argv.pop(1))
original, calls = predict._answers_to, []
def answers_to(*given):
    calls.append(given)
    if len(calls) == 3:
        os.kill(os.getpid(), number)
    return original(*given)
predict._answers_to = answers_to
longtail.main()
"""


@pytest.fixture
def many(place):
    lines = (json.dumps({"id": i, "text": f"imports of fish {i % 7}"}) for i in range(NUM_LINES))
    (place / "many.jsonl").write_text("\n".join(lines) + "\n")
    return place


def stop_by(number: signal.Signals, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", STOPPED, str(int(number)), *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_predict_that_was_stopped_writes_nothing_and_can_start_again(many, run, number):
    done = stop_by(number, PREDICT)
    assert "Traceback" not in done.stderr
    if number == signal.SIGINT:
        assert (done.returncode, list(many.glob("*out*"))) == (130, [])
        assert done.stderr.endswith("Interrupted.\n")
    else:
        assert done.returncode == -signal.SIGKILL
    assert not Path("out").exists()
    assert run(*PREDICT).status == 0
    assert Path("out").read_bytes().count(b"\n") == NUM_LINES


@pytest.mark.parametrize("words", ["registry show --json", "--help", "train --help", "--version"])
def test_a_reader_that_goes_away_is_no_error_to_tell(place, words):
    reader, writer = os.pipe()
    os.close(reader)  # gone before the first line, whatever is faster
    command = [sys.executable, "-m", "longtail", *words.split()]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_two_runs_never_train_in_one_folder(place, run):
    Path("work").mkdir()
    with held(Path("work/.lock"), "busy"):
        outcome = run("train", "data", "--config", "sparse", "--work", "work")
    assert outcome.status == 1
    assert "--work 'work': another run works in it; wait for it, or choose another" in outcome.err
    assert run("train", "data", "--config", "sparse", "--work", "work").status == 0
    assert not Path("work/.lock").exists()


def test_a_lock_ends_with_its_process(tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from longtail.models.files.outputs import held\n"
        "with held(Path(sys.argv[1]), 'busy'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / ".lock"
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.exists()
    with held(path, "busy"), pytest.raises(ConfigError, match="busy"), held(path, "busy"):
        pass


READ_ONLY = [
    ("train data --config sparse --registry DISK/registry", "--registry 'DISK/registry'"),
    ("predict --input docs.jsonl --output DISK/out", "--output 'DISK'"),
    ("evaluate data --output DISK/out", "--output 'DISK/out'"),
    ("registry activate 1 --registry DISK/registry", "changing the registry: 'DISK/registry"),
]


@pytest.mark.parametrize(("words", "told"), READ_ONLY, ids=[x[0] for x in READ_ONLY])
def test_a_disk_without_rights_is_told_before_the_work(place, run, disk, words, told):
    folder = disk("20m", content=place / "registry", read_only=True)
    outcome = run(*words.replace("DISK", str(folder)).split())
    assert outcome.status == 1
    assert told.replace("DISK", str(folder)) in outcome.err
    assert "the file system is read-only; write to another folder" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_disk_that_fills_is_told_as_the_output(many, run, disk):
    folder = disk("64k")
    words = (*PREDICT[:3], "--output", folder / "out", "-k", "2")
    outcome = run(*words)
    assert outcome.status == 1
    assert f"Error: writing the answers: '{folder}/out': no space is left" in outcome.err
    assert "many.jsonl" not in outcome.last_line
    subprocess.run(["/bin/mount", "-o", "remount,size=20m", str(folder)], check=True)
    assert run(*words).status == 0
    assert (folder / "out").read_bytes().count(b"\n") == NUM_LINES
