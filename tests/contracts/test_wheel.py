"""The wheel holds all that works outside the checkout: code, page, configurations, demo data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("models", "training", "service")
OTHERS = ("longtail.py", "pyproject.toml", "README.md", "LICENSE")
DATA = ("service/page/*.html", "service/page/*.js", "service/page/*.css", "service/page/*.svg",
        "service/api_docs/*",
        "training/configs/*.yaml", "training/demo_data/*")  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy, so that nothing is left in the checkout."""
    pytest.importorskip("setuptools", minversion="77")
    source, built = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for name in PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    for name in OTHERS:
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(built), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = built.glob("longtail-*.whl")
    return path


def test_it_holds_all_code_and_data(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    code = [ROOT / "longtail.py", *(path for x in PACKAGES for path in (ROOT / x).rglob("*.py"))]
    data = [path for pattern in DATA for path in ROOT.glob(pattern)]
    assert len(data) > 20
    assert {path.relative_to(ROOT).as_posix() for path in [*code, *data]} - held == set()
    assert [name for name in held if name.startswith(("tests/", "docs/"))] == []


def test_what_is_installed_needs_nothing_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    zipfile.ZipFile(wheel).extractall(site)
    empty.mkdir()
    code = (
        "import longtail, service.routes.page\n"
        "from pathlib import Path\n"
        "from training.configuration.run import read_config\n"
        "from training.data.dataset import open_dataset\n"
        "print(longtail.__file__)\n"
        "read_config(longtail.DEMO_CONFIG)\n"
        "assert open_dataset(longtail.DEMO_DATA).split_names == ('train', 'dev', 'test')\n"
        "assert (Path(longtail.__file__).parent / 'service' / 'page' / 'index.html').is_file()\n"
        "assert all(getattr(longtail, name) for name in longtail.__all__)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for command in (["-c", code], ["-m", "longtail", "demo", "--help"]):
        run = subprocess.run(
            [sys.executable, *command],
            cwd=empty, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        assert str(site) in run.stdout or "--without-encoder" in run.stdout
    assert list(empty.iterdir()) == []
