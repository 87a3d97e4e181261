"""The core does without its extensions, and takes those of other packages."""

import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail import extensions
from longtail.models.errors import ConfigError

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("longtail.ext."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
CORE = """
import longtail
from fastapi.testclient import TestClient
from longtail.extensions import engine_named, extensions
from longtail.models.errors import ConfigError
from longtail.service.app import create_app
from longtail.service.settings import Settings

app = create_app(Settings(registry="registry"))
paths = {path.split("/")[1] for path in app.openapi()["paths"]}
with TestClient(app) as client:
    assert [client.get(path).status_code for path in ("/livez", "/v2")] == [200, 404]
try:
    engine_named("ray")
    raise SystemExit("an absent engine is accepted")
except ConfigError as error:
    assert "lacks the extension 'ray'" in str(error)
print(extensions(), *paths)
longtail.app(["--help"], standalone_mode=False)
"""
OUTSIDE = extensions.Extension(
    "shout", commands=lambda: [extensions.Command("shout", lambda: None)]
)


def test_the_service_and_the_command_start_without_the_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ABSENT + CORE], cwd=tmp_path, check=False, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *helped = done.stdout.splitlines()
    assert first.startswith("() ") and "v1" in first.split()
    named = {words[1] for line in helped if len(words := line.split()) > 1}
    assert {"train", "serve", "registry"} <= named
    assert "mcp" not in named


def test_every_folder_is_an_extension_and_the_reverse():
    folder = Path(longtail.__file__).parent / "ext"
    there = {path.parent.name for path in folder.glob("*/extension.py")}
    assert there == set(extensions.BUILT_IN) == {x.name for x in extensions.extensions()}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Installs a package whose entry point has this value, and returns the extensions then."""

    def install(value: str) -> tuple[extensions.Extension, ...]:
        folder = tmp_path / "other-1.0.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{extensions.GROUP}]\nother = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)
        return extensions.extensions.__wrapped__()

    return install


def test_an_extension_of_another_package_comes_last(outside, monkeypatch):
    monkeypatch.setattr(extensions, "OUTSIDE", OUTSIDE, raising=False)
    *_, last = outside("longtail.extensions:OUTSIDE")
    assert last is OUTSIDE


def test_one_that_cannot_be_used_is_named(outside, monkeypatch):
    with pytest.raises(ConfigError, match=r"'other': no_such:X can't be loaded .*No module"):
        outside("no_such:X")
    with pytest.raises(ConfigError, match=r"GROUP is a str; expected a longtail\.extensions\.Ext"):
        outside("longtail.extensions:GROUP")
    monkeypatch.setattr(extensions, "TWICE", extensions.Extension("mcp"), raising=False)
    with pytest.raises(ConfigError, match="extension 'mcp': two packages"):
        outside("longtail.extensions:TWICE")
