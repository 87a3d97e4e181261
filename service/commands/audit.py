"""`longtail registry log`: who changed a registry."""

from __future__ import annotations

from service.commands.options import DEFAULT_REGISTRY, JsonOption, RegistryOption, print_json
from service.commands.registry import existing_registry, print_table


def log(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """List all changes of a registry: when (UTC), who, what, and what 'current' named then."""
    entries = existing_registry(registry).changes.entries()
    if as_json:
        print_json(entries)
        return
    print_table(
        ("WHEN", "WHO", "ACTION", "VERSION", "CURRENT", "DIGEST", "REQUEST"),
        [
            (
                each["at"],
                each.get("user") or f"key {each.get('key')}",
                each["action"],
                each["version"],
                f"{each['from'] or 'none'} -> {each['to'] or 'none'}",
                (each["digest"] or "unknown")[:12],
                each.get("request_id", ""),
            )
            for each in entries
        ],
    )
