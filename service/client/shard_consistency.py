"""Whether shards are of one model and know the same stored sets."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.service.client.calls import ClientError
from longtail.service.schemas.shards import StoredSet

_MAX_NAMED = 5
"""Shards that an error names."""


class MixedShardsError(ClientError):
    """The shards answered by versions that do not belong together."""


class MixedSetsError(ClientError):
    """The services of the shards have unlike stored sets under one name."""


def check_alike(where: str, stored: Sequence[StoredSet]) -> None:
    """Refuse a stored set that is not the same for all shards.

    Args:
        where: Who names it.
        stored: What the services of each shard have.

    Raises:
        MixedSetsError: It differs.
    """
    shards_of: dict[tuple[int, str], list[str]] = {}
    for number, each in enumerate(stored):
        shards_of.setdefault((each.label_count, each.digest), []).append(str(number))
    if len(shards_of) == 1:
        return
    came = "; ".join(
        f"{label_count} labels ({digest[:12]}) on shard {', '.join(shards[:_MAX_NAMED])}"
        + (f" and {len(shards) - _MAX_NAMED} more" if len(shards) > _MAX_NAMED else "")
        for (label_count, digest), shards in shards_of.items()
    )
    raise MixedSetsError(
        f"{where}: the shards have unlike sets of this name: {came}; put the same file into the "
        "folders that LONGTAIL_LABEL_SETS names on all their machines, and ask again"
    )
