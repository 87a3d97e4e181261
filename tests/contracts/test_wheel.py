"""The wheel holds all that works outside the checkout: code, page, configurations, demo data."""

import json
import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from longtail.models.native import build

pytestmark = pytest.mark.slow  # it is built, and installed

ROOT = Path(__file__).parents[2]
PACKAGES = ("longtail", "models", "training", "service")
DATA = ("models/native/*.c", "models/native/*.h",
        "service/page/*.html", "service/page/*.js", "service/page/*.css", "service/page/*.svg",
        "service/api_docs/*",
        "training/configs/*.yaml", "training/demo_data/*")  # fmt: skip


def test_it_holds_all_code_and_data(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    code = [path for x in PACKAGES for path in (ROOT / x).rglob("*.py")]
    data = [path for pattern in DATA for path in ROOT.glob(pattern)]
    assert len(data) > 20
    names = {path.relative_to(ROOT).as_posix() for path in [*code, *data]}
    assert {f"longtail/{name.removeprefix('longtail/')}" for name in names} - held == set()


def test_it_holds_the_compiled_loops_for_any_python_of_its_platform(wheel):
    held = [Path(name).name for name in zipfile.ZipFile(wheel).namelist()]
    levels = {build.library_path(Path(), level).name for level in build.levels()}
    assert {name for name in held if name.startswith("kernels-")} == levels
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert not wheel.name.endswith("-any.whl")


def test_its_only_top_level_name_is_longtail(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"longtail"}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return Python of an environment with the wheel and modules of others with common names.

    The libraries are those of this environment.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt")
    (site,) = folder.rglob("site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    write_modules_of_others(site)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def write_modules_of_others(folder: Path) -> None:
    """Write a module `models` and packages `training` and `service` that nobody should import."""
    for name in ("models.py", "training/__init__.py", "service/__init__.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise RuntimeError('a module of others was imported')", "utf-8")


@pytest.fixture
def run(installed, tmp_path):
    """Run Python in a folder that has modules of others, too; it must not fail."""
    write_modules_of_others(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run_it(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed, *arguments], cwd=tmp_path, env=environment, check=check,
            capture_output=True, text=True,
        )  # fmt: skip

    return run_it


def test_what_is_installed_needs_nothing_of_the_checkout(run, tmp_path):
    before = sorted(tmp_path.iterdir())
    code = (
        "import longtail, longtail.service.routes.page\n"
        "from pathlib import Path\n"
        "from longtail.demo import demo\n"
        "from longtail.training.configuration.run import read_config\n"
        "from longtail.training.data.dataset import open_dataset\n"
        "read_config(Path(longtail.TRAINING) / 'configs' / 'full.yaml')\n"
        "assert open_dataset(longtail.DEMO_DATA).split_names == ('train', 'dev', 'test')\n"
        "assert (Path(longtail.__file__).parent / 'service' / 'page' / 'index.html').is_file()\n"
        "assert all(getattr(longtail, name) for name in longtail.__all__)\n"
        "print(longtail.__file__)\n"
    )
    assert "site-packages" in run("-c", code).stdout
    assert "--serve" in run("-m", "longtail", "demo", "--help").stdout
    assert sorted(tmp_path.iterdir()) == before


def test_it_trains_predicts_and_serves_beside_modules_of_others(run, tmp_path, tiny_corpus):
    text = "imports of olive oil"
    (tmp_path / "texts.txt").write_text(text, "utf-8")
    run("-m", "longtail", "train", str(tiny_corpus), "--config", "sparse")
    run("-m", "longtail", "predict", "--input", "texts.txt", "--output", "labels.jsonl")
    predicted = json.loads((tmp_path / "labels.jsonl").read_text("utf-8"))
    served = run("-c", SERVE, text).stdout.splitlines()
    ids = [label["id"] for label in predicted["labels"]]
    assert len(ids) == 5 and served == ids


SERVE = """
import socket, subprocess, sys, time
from longtail.service.client import Client
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
command = [sys.executable, "-m", "longtail", "serve", "--port", str(port), "--drain-delay-s", "0"]
server = subprocess.Popen(command)
try:
    with Client(f"http://127.0.0.1:{port}") as client:
        while not client.is_ready():
            assert server.poll() is None
            time.sleep(0.1)
        answer = client.predict([sys.argv[1]], k=5)
finally:
    server.terminate()
    server.wait()
print(*[label.id for label in answer.results[0].labels], sep="\\n")
"""
"""Starts a service, asks it for the labels of one text, and prints their ids."""
