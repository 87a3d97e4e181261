"""Queries of the engine and their limits, and stored sets of labels, which queries name."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from longtail.models.errors import ConfigError, RequestError
from longtail.models.labels.filters import LabelSet
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.process.reloading_file import ReloadingFile
from longtail.service.schemas.requests import Options

logger = logging.getLogger(__name__)

MAX_BYTES = 2**24
"""Largest file, so that reading it again holds up nobody for long."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SUFFIXES = (".json", ".txt")
_MAX_NAMED = 20


class LabelSets:
    """The sets of a folder: NAME.json, a list of ids, or NAME.txt, an id on each line."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read all files.

        Args:
            folder: Where they are; None: there are no sets.
        """
        self._folder = folder
        self._files: dict[str, ReloadingFile[LabelSet]] = {}
        if folder is None:
            return
        if not folder.is_dir():
            raise ConfigError(
                f"label sets {str(folder)!r}: not a folder; make it, or unset LONGTAIL_LABEL_SETS"
            )
        for path in sorted(folder.iterdir()):
            if path.suffix in _SUFFIXES and not path.name.startswith("."):
                self._add(path)

    def get(self, name: str) -> LabelSet:
        """Return a set as its file is now; one that has become unreadable stays as it was."""
        path = self._path_of(name)
        if path is None:
            self._files.pop(name, None)
            raise RequestError(self._unknown(name))
        self._refresh(name, path)
        if name not in self._files:
            raise RequestError(self._unknown(name))
        return self._files[name].content

    def all(self) -> list[LabelSet]:
        """Return all sets as their files are now, by name."""
        found = []
        for name in sorted({path.stem for path in self.files()} | set(self._files)):
            with suppress(RequestError):  # it is gone, or was never readable
                found.append(self.get(name))
        return found

    def files(self) -> list[Path]:
        """Return the files of the sets."""
        if self._folder is None or not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if path.suffix in _SUFFIXES)

    def _path_of(self, name: str) -> Path | None:
        if self._folder is None or not _NAME.fullmatch(name):
            return None
        paths = (self._folder / (name + suffix) for suffix in _SUFFIXES)
        return next((path for path in paths if path.is_file()), None)

    def _add(self, path: Path) -> None:
        if path.stem in self._files:
            raise ConfigError(f"label set {path.stem!r} has two files; remove one of them")
        self._files[path.stem] = ReloadingFile(path, read_label_set)

    def _refresh(self, name: str, path: Path) -> None:
        file = self._files.get(name)
        try:
            if file is None or file.path != path:
                file = self._files[name] = ReloadingFile(path, read_label_set)
            elif not file.refresh():
                return
        except ConfigError as error:
            logger.error("the label set stays as it was: %s", error)
        else:
            logger.info("read the label set %s: %d labels", name, len(file.content.ids))

    def _unknown(self, name: str) -> str:
        known = ", ".join(sorted(self._files)[:_MAX_NAMED])
        what = f"the sets are {known}" if known else "there are no sets"
        return (
            f"label set {name[:100]!r} is not stored; {what}; name one of them, or put a file into "
            "the folder that LONGTAIL_LABEL_SETS names"
        )


def read_label_set(path: Path) -> LabelSet:
    """Return the set of a file."""
    where = f"label set {str(path)!r}"
    if not _NAME.fullmatch(path.stem):
        raise ConfigError(
            f"{where}: expected a name of 1 to 100 letters, digits, dots, hyphens or underscores"
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{where}: more than {MAX_BYTES} bytes; make sets of fewer labels")
        text = path.read_text(encoding="utf-8-sig")
        ids = json.loads(text) if path.suffix == ".json" else _lines(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} can't be read ({type(error).__name__})") from error
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise ConfigError(f"{where}: expected a JSON list of label ids, which are text")
    if not ids:
        raise ConfigError(f"{where}: has no label; put at least one id into it, or remove it")
    return LabelSet(path.stem, tuple(dict.fromkeys(ids)))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


MAX_FILTER_LABELS = 10_000
"""Label ids that a request may include and exclude."""
MAX_EXPLAINED_LABELS = 100
"""Labels that a request may have explained: its `k` times its texts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that queries may ask for; see `longtail.service.settings.Settings`."""

    max_texts: int
    max_text_characters: int
    max_k: int
    max_queue_tokens: int = 2**16
    max_batch_tokens: int | None = None
    request_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Query:
    """Texts, and what to answer about each.

    Attributes:
        texts: At least one.
        asked: What the request, or the line of a batch, asks for; valid by itself.
        timeout_s: Seconds in which the answer is of use; None: the service's limit, which also
            bounds it.
    """

    texts: Sequence[str]
    asked: Options = field(default_factory=Options)
    timeout_s: float | None = None


def options_for(asked: Options, predictor: Predictor, label_sets: LabelSets) -> RankingOptions:
    """Return what a request asks of a model; of the default scorer where it names none."""
    found = asked.ranking(len(predictor.catalogue), label_sets.get)
    if found.scorer is not None:
        return found
    default = predictor.scorers.default
    schemes = tuple(replace(scheme, scorer=default) for scheme in found.schemes)
    return replace(found, scorer=default, schemes=schemes)


def check_query(query: Query, limits: Limits) -> None:
    """Check that a query keeps the limits."""
    if not 1 <= len(query.texts) <= limits.max_texts:
        raise RequestError(
            f"the request has {len(query.texts)} texts; expected 1 to {limits.max_texts}; "
            "send the others in further requests"
        )
    for index, text in enumerate(query.texts):
        if len(text) > limits.max_text_characters:
            raise RequestError(
                f"text {index} has {len(text)} characters; expected at most "
                f"{limits.max_text_characters}; shorten it"
            )
    asked = query.asked
    k = asked.num_labels if asked.schemes else asked.k
    if k > limits.max_k:
        raise RequestError(f"k is {k}; expected 1 to {limits.max_k}")
    num_labels = len(asked.include or ()) + len(asked.exclude) + len(asked.under)
    if num_labels > MAX_FILTER_LABELS:
        raise RequestError(
            f"include, exclude and under name {num_labels} labels; expected at most "
            f"{MAX_FILTER_LABELS}; let the service store them as a set, and name that"
        )
    num_explained = k * len(query.texts)
    if asked.explain and num_explained > MAX_EXPLAINED_LABELS:
        raise RequestError(
            f"{num_explained} labels are to be explained (k times texts); expected at most "
            f"{MAX_EXPLAINED_LABELS}; ask for fewer, or send the texts one by one"
        )
