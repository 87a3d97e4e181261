"""Settings: options over variables over defaults; nothing misspelt goes unseen."""

import pytest

from longtail.models.errors import ConfigError
from longtail.service.app import create_app
from longtail.service.settings import Settings, describe_settings, load_settings


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
