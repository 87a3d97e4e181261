"""`longtail promote`: replaces the current version by a candidate, or says why not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.extensions import Command, Extension
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    RegistryOption,
    SplitOption,
    configure_logging,
    with_read_option,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.ext.promotion.judge import Promotion
    from longtail.ext.promotion.log import PromotionLog
    from longtail.ext.promotion.rules import PromotionRules
    from longtail.ext.promotion.verdict import Decision, Pair
    from longtail.models.bundle.bundle import Bundle
    from longtail.models.bundle.registry import Registry


@with_read_option
def promote(
    candidate: Annotated[
        int, typer.Option(min=1, help="Number of the version that is to become current.")
    ],
    data: Annotated[
        Path,
        typer.Option(help="Folder of a corpus, or one file: documents held out of both."),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    split: SplitOption = "dev",
    feedback: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="An export of feedback with texts, or the folder or URL that keeps it.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="A service to try it on as a canary; else 'current' moves at once."),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds an admin key."),
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="The canary's share of the requests: 0.1.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="How long it is watched: 10.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="RULE=VALUE", help="Sets a rule; give it several times."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Every decision, a line each; REGISTRY/promotions.jsonl."
        ),
    ] = None,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Compare a version with the current one, try it on a service, and promote it or not.

    Exit status 1 if it is not promoted. Stopped, the same command goes on.
    """
    configure_logging()
    from longtail.commands.feedback_files import feedback_file
    from longtail.ext.promotion.canary import check_access
    from longtail.ext.promotion.judge import HeldOut
    from longtail.ext.promotion.judge import promote as promote_version
    from longtail.ext.promotion.log import LOG_NAME, PromotionLog
    from longtail.ext.promotion.rules import rules_of
    from longtail.models.bundle.registry import Registry
    from longtail.training.assessment.untrained import open_as_trained

    rules = rules_of(settings or [], share, minutes)
    key = _key_of(url, api_key_env)
    store = Registry(registry)
    store.resolve(candidate)
    written = PromotionLog(log or registry / LOG_NAME)
    written.check_writable()
    rollout = None
    if url is not None:
        check_access(url, key)
        rollout = partial(_try, url, key, written, rules)
    opened: AbstractContextManager[Path | None] = (
        nullcontext() if feedback is None else feedback_file(feedback)
    )
    with opened as said:
        bundles = _readable(store, (candidate, "current"))
        known = bundles[0].catalogue if bundles else None
        dataset = open_as_trained(data, corpus, bundles, known)
        held_out = HeldOut(dataset, split, said)
        _tell(promote_version(store, candidate, held_out, rules, written, rollout), written)


def _readable(store: Registry, versions: Sequence[int | str]) -> list[Bundle]:
    """Return the versions that can be opened; why others can't is found when they are judged."""
    from longtail.models.errors import BundleError

    found = []
    for version in versions:
        with suppress(BundleError):
            found.append(store.open(version))
    return found


def _try(
    url: str,
    key: str | None,
    log: PromotionLog,
    rules: PromotionRules,
    pair: Pair,
    texts: Sequence[str],
) -> Decision:
    from longtail.ext.promotion.canary import try_on_service

    print(
        f"Version {pair.candidate} is tried on {url}: {100 * rules.share:g} % of the requests for "
        f"{rules.minutes:g} minutes.",
        flush=True,
    )
    return try_on_service(url, key, log, pair, rules, texts)


def _key_of(url: str | None, variable: str | None) -> str | None:
    from longtail.models.errors import ConfigError

    if variable is None:
        return None
    if url is None:
        raise ConfigError("--api-key-env: is given without --url; expected both, or neither")
    if not (key := os.environ.get(variable)):
        raise ConfigError(
            f"--api-key-env {variable!r}: no such environment variable; set it to an admin key"
        )
    return key


def _tell(promotion: Promotion, log: PromotionLog) -> None:
    from longtail.models.errors import PromotionRefusedError

    pair, decision = promotion.pair, promotion.decision
    if promotion.verdict is not None and (report := promotion.verdict.to_markdown()):
        print(report + "\n")
    print(f"Written: {log.path}")
    reasons = "; ".join(decision.reasons)
    if not decision.promote:
        raise PromotionRefusedError(
            f"version {pair.candidate} is not promoted, version {pair.current} stays: {reasons}"
        )
    print(f"Version {pair.candidate} is promoted: {reasons}.")


EXTENSION = Extension("promotion", commands=lambda: [Command("promote", promote)])
