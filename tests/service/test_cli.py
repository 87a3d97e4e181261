"""`longtail serve` and `longtail registry ...`."""

import json
import re

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from longtail.models.errors import BundleCorruptError, ConfigError
from longtail.service.app import create_app
from longtail.service.cli import add_commands
from longtail.service.commands.serve import serve_command
from longtail.service.http.api_keys import KeyRing
from longtail.service.settings import Settings, describe_settings, load_settings


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


def test_verify_fails_on_files_that_fit_the_manifest_and_make_no_model(run):
    with pytest.raises(BundleCorruptError, match=r"can't be used"):
        run("registry", "verify")


def test_verify_fails_on_a_changed_file(run, registry):
    (registry.folder / "2" / "labels.jsonl").write_text("x")
    with pytest.raises(BundleCorruptError, match=r"file 'labels\.jsonl'"):
        run("registry", "verify")


def test_activate_and_rollback_move_current_and_say_so(run, registry, monkeypatch):
    # These versions have labels alone, and no scorer that could be tried.
    monkeypatch.setattr("longtail.models.predict.trial.check_answers", lambda bundle: None)
    assert "Current is version 1 (before: 2)." in run("registry", "activate", "1")
    assert registry.current() == 1
    assert json.loads(run("registry", "rollback", "--json")) == {"before": 1, "current": 2}
    assert registry.current() == 2


def test_serve_has_an_option_for_every_setting_and_no_other():
    options = get_command(serve_command()).params
    assert [option.name for option in options] == list(Settings.model_fields)


def test_serve_starts_the_application_with_the_given_settings(run, registry, monkeypatch):
    started = {}
    monkeypatch.setattr("longtail.service.server.serve", lambda app: started.update(app=app))
    monkeypatch.setattr("longtail.service.telemetry.logs.configure_logging", started.setdefault)
    run("serve", "--port", "0", "--versions", "2,1", "--shutdown-timeout-s", "3")
    settings = started["app"].state.service.settings
    assert (settings.port, settings.shutdown_timeout_s, settings.versions) == (0, 3, (2, 1))
    assert "info" in started


def test_key_prints_a_key_and_the_line_that_lets_it_in():
    app = typer.Typer()
    add_commands(app)
    made = json.loads(CliRunner().invoke(app, ["key", "ops", "--json"]).stdout)
    assert KeyRing("admin", made["entry"]).name_of(made["key"]) == "ops"
    shown = CliRunner().invoke(app, ["key", "ops"]).stdout
    assert re.search(r"Key, .*: +lt_\S+\nLine, .*: ops:[0-9a-f]{64}\n", shown)


def test_options_win_over_variables_and_those_over_defaults(monkeypatch):
    monkeypatch.setenv("LONGTAIL_PORT", "9001")
    monkeypatch.setenv("LONGTAIL_MAX_K", "7")
    settings = load_settings(port=9002)
    assert (settings.port, settings.max_k, settings.host) == (9002, 7, "127.0.0.1")


def test_an_unknown_variable_stops_the_start_and_names_the_closest(monkeypatch):
    monkeypatch.setenv("LONGTAIL_MAX_BODY_BYTE", "5")
    with pytest.raises(ConfigError, match=r"'LONGTAIL_MAX_BODY_BYTE'.*'LONGTAIL_MAX_BODY_BYTES'"):
        create_app()


def test_a_bad_variable_is_named_with_its_value(monkeypatch):
    monkeypatch.setenv("LONGTAIL_PORT", "eighty")
    with pytest.raises(ConfigError, match=r"LONGTAIL_PORT: got 'eighty'; expected a whole number"):
        load_settings()


def test_a_setting_is_described_by_its_field_alone():
    found = {each.name: each for each in describe_settings()}
    assert list(found) == list(Settings.model_fields)
    port, device, timeout = found["port"], found["device"], found["request_timeout_s"]
    assert (port.option, port.variable) == ("--port", "LONGTAIL_PORT")
    assert (port.kind, port.bounds, port.default) == (int, "0 to 65535", "8000")
    assert (device.choices, device.default) == (("cpu", "cuda"), "automatic")
    assert (timeout.bounds, timeout.details) == ("more than 0", "A request may ask for less.")
    assert all(each.help.endswith(".") and len(each.help) < 100 for each in found.values())
