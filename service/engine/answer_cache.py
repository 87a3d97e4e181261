"""Answers that are kept for texts which come again: in memory, bounded in bytes, off by default.

An answer is found by a digest of the text, of the version and of all options, and is the one that
would be computed. Neither texts nor explanations, which quote them, are kept.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from threading import Lock

from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions
from longtail.models.results import Prediction

_ENTRY_BYTES = 1024
"""Of an answer without labels: its key, its place in the order, its own fields."""
_LABEL_BYTES = 256
"""Of a label of an answer, without the characters of its id and name."""


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """Makes the keys of texts that are asked of one version with the same options.

    Attributes:
        version: Digest of the version's bundle.
        question: Digest of that and of the options.
    """

    version: str
    question: bytes

    @classmethod
    def of(cls, version: str, options: RankingOptions) -> CacheKeys:
        """Return the keys of a version, by its bundle's digest, and of options."""
        asked = (
            version, options.k, options.scorer, options.threshold, options.correction,
            options.tail_dial, options.aim, _filter_key(options.label_filter),
        )  # fmt: skip
        return cls(version, hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).digest())

    def key(self, text: str) -> bytes:
        """Return the key of a text."""
        return hashlib.sha256(self.question + text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class _Entry:
    version: str
    prediction: Prediction
    num_bytes: int


class AnswerCache:
    """The answers given last, of the versions that are served; may be used by any thread."""

    def __init__(self, max_bytes: int = 0) -> None:
        """Begin empty.

        Args:
            max_bytes: Of all answers together, about; 0: none is kept.
        """
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # the one used last is at the end
        self._num_bytes = 0
        self._versions: frozenset[str] = frozenset()
        self._lock = Lock()

    @property
    def is_on(self) -> bool:
        """Whether answers are kept."""
        return self._max_bytes > 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the answers that are kept, about."""
        return self._num_bytes

    def __len__(self) -> int:
        """Return the number of answers that are kept."""
        return len(self._entries)

    def keep(self, versions: Collection[str]) -> None:
        """Forget answers of all versions but these, and take none of others from now on.

        Args:
            versions: Digests of the bundles that are served.
        """
        with self._lock:
            self._versions = frozenset(versions)
            gone = [k for k, entry in self._entries.items() if entry.version not in self._versions]
            for key in gone:
                self._num_bytes -= self._entries.pop(key).num_bytes

    def get(self, keys: CacheKeys, text: str) -> Prediction | None:
        """Return the answer about a text, if it is kept."""
        key = keys.key(text)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.prediction

    def put(self, keys: CacheKeys, text: str, prediction: Prediction) -> None:
        """Keep the answer about a text; those that were not asked for longest make room for it."""
        num_bytes = _bytes_of(prediction)
        if num_bytes > self._max_bytes:
            return
        entry = _Entry(keys.version, prediction, num_bytes)
        key = keys.key(text)
        with self._lock:
            if keys.version not in self._versions:  # it was served when it was asked
                return
            before = self._entries.pop(key, None)
            self._num_bytes += num_bytes - (before.num_bytes if before else 0)
            self._entries[key] = entry
            while self._num_bytes > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._num_bytes -= oldest.num_bytes


def is_kept(options: RankingOptions) -> bool:
    """Whether answers to such a question may be kept: explanations quote the text."""
    return not options.explain


def _filter_key(label_filter: LabelFilter | None) -> object:
    """Return what tells filters apart; sets may change, so they are known by their labels."""
    if label_filter is None:
        return None
    sets = (label_filter.include_set, label_filter.exclude_set)
    digests = tuple(None if each is None else each.digest for each in sets)
    return label_filter.include, label_filter.exclude, *digests, label_filter.under


def _bytes_of(prediction: Prediction) -> int:
    """Return about how much memory an answer takes; ids and names may be the catalogue's own."""
    texts = sum(len(label.id) + len(label.name) for label in prediction.labels)
    warned = sum(len(x) for each in prediction.warnings for x in (each.detail, *each.label_ids))
    return _ENTRY_BYTES + _LABEL_BYTES * len(prediction.labels) + texts + warned
