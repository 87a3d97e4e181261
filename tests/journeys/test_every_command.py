"""Every command, as the application lists them, with bad values for every path that it takes.

New commands and options join by themselves. Of each: exit status 0, 1 or 2, no traceback, and a
reason on stderr where it failed.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from click import Context
from typer.main import get_command

import longtail

# Each is bad for a file and for a folder, to read and to write.
BAD_PATHS = {
    "binary": "binary", "device": "device", "under a file": "binary/x/y", "too long": "x" * 300,
    "a circle of links": "circle/x",
}  # fmt: skip
GOOD = {
    "data": "data", "registry": "registry", "source": "docs.jsonl", "label": "fish",
    "first": "binary", "second": "binary",
}  # fmt: skip
"""What the other parameters get, by their name."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below a group, with the words that call it."""
    for name in group.list_commands(Context(group)):
        command = group.get_command(Context(group), name)
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(get_command(longtail.app)))


def paths_of(command: Any) -> set[str]:
    """Return the names of the parameters of a command that are paths."""
    hints = get_type_hints(inspect.unwrap(command.callback))
    return {name for name, hint in hints.items() if Path in (hint, *get_args(hint))}


CASES = [
    (words, parameter.name)
    for words, command in COMMANDS.items()
    for parameter in command.params
    if parameter.name in paths_of(command)
]


def typed(words: tuple[str, ...], values: dict[str, str]) -> list[str]:
    """Return a command line with these values, and something for all that is required besides."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in COMMANDS[words].params:
        value = values.get(parameter.name)
        if value is None and parameter.required:
            value = "1"
        if value is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(value)
        else:
            options += [parameter.opts[0], value]
    return [*words, *options, "--", *arguments]


@pytest.fixture
def things(place, monkeypatch):
    """A place in which nothing takes long: no service starts, no demo runs."""
    (place / "circle").symlink_to("circle")
    monkeypatch.setattr("longtail.service.server.serve", lambda app: None)
    monkeypatch.setattr("longtail.service.telemetry.logs.configure_logging", lambda *_: None)
    monkeypatch.setattr("longtail.demo.DEMO_DATA", place / "no-demo-data")
    return place


def test_there_are_commands_and_paths_to_try():
    assert len(COMMANDS) > 18 and len(CASES) > 40
    assert {name for _, name in CASES} >= {"data", "registry", "output", "target", "work"}


@pytest.mark.parametrize(("words", "name"), CASES, ids=[f"{' '.join(w)} {n}" for w, n in CASES])
def test_a_bad_path_is_told_whatever_else_is_right(things, run, words, name):
    for kind, value in BAD_PATHS.items():
        outcome = run(*typed(words, GOOD | {name: value}))
        assert outcome.status in {0, 1, 2}, (kind, outcome)
        if name in {"data", "target", "config", "source", "first", "second"}:
            assert outcome.status in {1, 2}, (kind, outcome)


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words) for words in COMMANDS])
def test_unknown_options_and_too_many_words_are_wrong_usage(things, run, words):
    assert run(*words, "--no-such-option").status == 2
    outcome = run(*words, *["x"] * 9)
    assert outcome.status == 2
    assert "Usage: longtail " in outcome.err


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words) for words in COMMANDS])
def test_help_explains_every_command(run, words):
    outcome = run(*words, "--help")
    assert outcome.status == 0
    assert "Usage: longtail " in outcome.out and "Raises:" not in outcome.out
