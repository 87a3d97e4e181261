"""Which part of a larger model a bundle is: a range of its labels.

A shard is a bundle like any other, with its labels numbered from 0 on, and one file more that says
where they stand in the whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from longtail.models.errors import BundleError
from longtail.models.files.json_text import parse_json, parse_own_json
from longtail.models.labels.catalogue import WholeCatalogue
from longtail.models.names import MAX_DOCUMENTS

SHARD_NAME = "shard.json"
MAP_NAME = "shards.json"
"""Beside the registries of the shards: which bundles belong together."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The place of a shard's labels among all.

    Attributes:
        number: Of the shard, from 0; the labels of shards rise with it.
        num_shards: How many there are.
        first: Index of the shard's first label in the whole.
        digest: Of the bundle that was split.
        whole: Of that bundle, what priors are taken over.
    """

    number: int
    num_shards: int
    first: int
    digest: str
    whole: WholeCatalogue

    def to_json(self) -> str:
        """Return the one way to write it."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Shard:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is not JSON, or no shard has such numbers.
            TypeError: A field is missing or unknown, or not of its type.
            KeyError: It does not say what the whole is.
        """
        fields = parse_own_json(text)
        shard = cls(**fields | {"whole": WholeCatalogue(**fields["whole"])})
        whole = shard.whole
        numbers = (shard.number, shard.num_shards, shard.first, *asdict(whole).values())
        if any(type(number) is not int for number in numbers) or type(shard.digest) is not str:
            raise TypeError(f"{fields}: expected whole numbers and a digest")
        if not 0 <= max(numbers) <= MAX_DOCUMENTS or whole.num_training_pairs < 0:
            raise ValueError(f"{fields}: a number is out of bounds")
        if not 0 <= shard.number < shard.num_shards or not 0 <= shard.first < whole.num_labels:
            raise ValueError(f"{fields}: there is no such shard")
        return shard


@dataclass(frozen=True, slots=True)
class SplitModel:
    """A model that was split.

    Attributes:
        digest: Of the whole.
        shard_digests: Of each shard's bundle, in order.
        shard_sizes: Labels of each.
    """

    digest: str
    shard_digests: tuple[str, ...]
    shard_sizes: tuple[int, ...]

    @property
    def num_labels(self) -> int:
        """Of the whole."""
        return sum(self.shard_sizes)


def read_map(path: Path) -> list[SplitModel]:
    """Return the models that were split, the latest last.

    Raises:
        BundleError: The file is missing, or is none that `longtail registry split` wrote.
    """
    try:
        return _split_models(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"shards: {str(path)!r} can't be read ({error!r}); write it again with 'longtail "
            "registry split'"
        ) from error


def _split_models(text: str) -> list[SplitModel]:
    """Return what stands in a map.

    Raises:
        ValueError: It is not JSON, or not of models of as many shards each.
        KeyError: A field is missing.
        TypeError: It is not a list of objects.
    """
    models = [
        SplitModel(x["digest"], tuple(x["shard_digests"]), tuple(x["shard_sizes"]))
        for x in parse_json(text)
    ]
    lengths = {len(x) for model in models for x in (model.shard_digests, model.shard_sizes)}
    if len(lengths) != 1:
        raise ValueError("expected models of as many shards each, and the size of each shard")
    return models


def shard_ranges(num_labels: int, num_shards: int) -> list[range]:
    """Return the labels of each shard: ranges as equal as can be, the longer ones first.

    Args:
        num_labels: At least as many as shards.
        num_shards: At least 1.
    """
    assert 1 <= num_shards <= num_labels
    size, num_longer = divmod(num_labels, num_shards)
    starts = [number * size + min(number, num_longer) for number in range(num_shards + 1)]
    return [range(*each) for each in pairwise(starts)]
