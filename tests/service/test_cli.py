"""`longtail serve` and `longtail registry ...`."""

from __future__ import annotations

import json
import re

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from longtail.models.errors import BundleCorruptError, BundleError, BundleNotFoundError, ConfigError
from longtail.service.cli import add_commands
from longtail.service.commands.serve import serve_command
from longtail.service.settings import Settings
from longtail.service.web.api_keys import KeyRing


@pytest.fixture
def run(registry):
    """Run a command on the registry of this test; an error of ours comes out as it is."""
    app = typer.Typer()
    add_commands(app)

    def invoke(*words, at=registry.folder):
        result = CliRunner().invoke(app, [*words, "--registry", str(at)])
        if result.exception is not None:
            raise result.exception
        return result.stdout

    return invoke


def test_list_shows_all_versions_aligned_and_stars_the_current(run, registry):
    head, first, second = run("registry", "list").splitlines()
    assert head.split() == ["VERSION", "PUBLISHED", "LABELS", "DEFAULT", "SCORER", "DIGEST"]
    assert first.index("1") == second.index("2") == head.index("VERSION")
    assert second.startswith("*")
    assert registry.open(2).manifest.digest[:12] in second


def test_list_gives_json(run):
    first, second = json.loads(run("registry", "list", "--json"))
    assert (first["version"], first["current"], second["current"]) == (1, False, True)
    assert second["scorers"] == ["retrieval", "sparse"]


def test_list_says_what_is_wrong_with_a_version(run, registry):
    (registry.folder / "1" / "manifest.json").write_text("{}")
    assert "manifest.json is not a bundle's manifest" in run("registry", "list")


def test_list_of_an_empty_registry_says_what_to_do(run, tmp_path):
    assert "train one with 'longtail train'" in run("registry", "list", at=tmp_path)


def test_list_of_a_missing_folder_fails(run, tmp_path):
    with pytest.raises(BundleNotFoundError, match="there is no such folder; check the path"):
        run("registry", "list", at=tmp_path / "none")


def test_activate_of_a_missing_version_does_not_advise_itself(run):
    with pytest.raises(BundleNotFoundError, match=r"there are: 1, 2; name one of these$"):
        run("registry", "activate", "9")


def test_the_folder_of_a_version_is_no_registry(run, registry):
    for command in ("list", "show", "verify"):
        with pytest.raises(BundleNotFoundError, match=r"the folder of one version; .* --registry"):
            run("registry", command, at=registry.folder / "1")


def test_show_prints_a_page_and_the_whole_manifest_as_json(run, registry):
    """The page was the whole manifest, 50 kB of it, on commit e37f807."""
    page = run("registry", "show", "1")
    assert re.search(r"^labels: +8$", page, re.MULTILINE)
    hint = f"longtail registry show 1 --registry {registry.folder} --json"
    assert hint in page and "p_at_1" not in page
    assert re.search(r"^chosen on: +the dev split$", page, re.MULTILINE)
    assert json.loads(run("registry", "show", "1", "--json"))["metrics"] == {
        "retrieval": {"p_at_1": 0.5}
    }
    shown = json.loads(run("registry", "show", "--json"))
    assert (shown["version"], shown["label_count"]) == (2, 8)


def test_log_shows_who_changed_what(run, registry):
    run("registry", "activate", "1")
    (*_, last) = json.loads(run("registry", "list", "--changes", "--json"))
    assert (last["action"], last["from"], last["to"]) == ("activate", 2, 1)
    assert f"{last['user']}  activate" in run("registry", "list", "--changes")


def test_verify_says_that_a_bundle_is_whole(run, trained_sparse):
    at = trained_sparse.registry.folder
    assert "Version 1 is whole: " in run("registry", "verify", at=at)
    assert json.loads(run("registry", "verify", "1", "--json", at=at))["version"] == 1


def test_verify_fails_on_files_that_fit_the_manifest_and_make_no_model(run):
    with pytest.raises(BundleCorruptError, match=r"can't be used"):
        run("registry", "verify")


def test_verify_fails_on_a_changed_file(run, registry):
    (registry.folder / "2" / "labels.jsonl").write_text("x")
    with pytest.raises(BundleCorruptError, match=r"file 'labels\.jsonl'"):
        run("registry", "verify")


def test_activate_and_rollback_move_current_and_say_so(run, registry):
    assert "Current is version 1 (before: 2)." in run("registry", "activate", "1")
    assert registry.current() == 1
    assert json.loads(run("registry", "rollback", "--json")) == {"before": 1, "current": 2}
    assert registry.current() == 2


def test_remove_deletes_a_version_but_not_the_current_one(run, registry):
    assert "Version 1 is removed." in run("registry", "remove", "1")
    assert registry.versions() == [2]
    with pytest.raises(BundleError, match="version 2 is the current one"):
        run("registry", "remove", "2")


def test_a_version_that_is_not_there_is_an_error_that_lists_the_others(run):
    with pytest.raises(BundleNotFoundError, match="there are: 1, 2"):
        run("registry", "show", "9")


def test_the_registry_comes_from_the_environment_too(registry, monkeypatch):
    monkeypatch.setenv("LONGTAIL_REGISTRY", str(registry.folder))
    app = typer.Typer()
    add_commands(app)
    assert "*" in CliRunner().invoke(app, ["registry", "list"]).stdout


def test_serve_has_an_option_for_every_setting_and_no_other():
    options = get_command(serve_command()).params
    assert [option.name for option in options] == list(Settings.model_fields)


def test_serve_shows_the_defaults_of_the_settings():
    options = {option.name: option for option in get_command(serve_command()).params}
    defaults = Settings().model_dump() | {"versions": "current"}
    for name, default in defaults.items():
        shown = options[name].show_default
        if default in (None, "", ()):
            assert shown in {"automatic", "by the device", "none"}, name
        else:
            read = str if isinstance(default, bool) else type(default)
            assert read(shown) == read(default), name


def test_the_help_of_serve_says_what_a_setting_may_be(run):
    shown = " ".join(run("serve", "--help").replace("│", " ").split())
    assert "One of debug, info, warning, error." in shown
    assert "From 0 to 65535. [default: (8000)]" in shown


def test_an_option_that_serve_does_not_have_is_named():
    app = typer.Typer()
    add_commands(app)
    result = CliRunner().invoke(app, ["serve", "--prot", "5"])
    assert result.exit_code == 2 and "--prot" in result.output


def test_serve_starts_the_application_with_the_given_settings(run, registry, monkeypatch):
    started = {}
    monkeypatch.setattr("longtail.service.server.serve", lambda app: started.update(app=app))
    monkeypatch.setattr("longtail.service.telemetry.logs.configure_logging", started.setdefault)
    run("serve", "--port", "0", "--versions", "2,1", "--shutdown-timeout-s", "3")
    settings = started["app"].state.service.settings
    assert (settings.port, settings.shutdown_timeout_s, settings.versions) == (0, 3, (2, 1))
    assert "info" in started


def test_serve_stops_at_once_where_there_is_nothing_to_serve(run, tmp_path):
    with pytest.raises(BundleNotFoundError, match="train one with 'longtail train'"):
        run("serve", at=tmp_path / "none")


def test_serve_stops_at_once_at_a_bad_option(run):
    with pytest.raises(ConfigError, match="--port: got 99999"):
        run("serve", "--port", "99999")


def test_key_prints_a_key_and_the_line_that_lets_it_in():
    app = typer.Typer()
    add_commands(app)
    made = json.loads(CliRunner().invoke(app, ["key", "ops", "--json"]).stdout)
    assert KeyRing("admin", made["entry"]).name_of(made["key"]) == "ops"
    shown = CliRunner().invoke(app, ["key", "ops"]).stdout
    assert re.search(r"Key, .*: +lt_\S+\nLine, .*: ops:[0-9a-f]{64}\n", shown)


def test_serve_does_not_look_for_versions_that_are_to_be_copied_first(run, registry, monkeypatch):
    started = []
    monkeypatch.setattr("longtail.service.server.serve", started.append)
    monkeypatch.setattr("longtail.service.telemetry.logs.configure_logging", lambda *_: None)
    run("serve", "--versions", "9", "--registry-source", registry.folder.as_uri())
    assert len(started) == 1
