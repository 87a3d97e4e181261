"""Metrics of the model versions: what is loaded, how loads and changes went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class ModelMetrics:
    """What a `Redeployer` tells, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        self._loaded = Gauge(
            "longtail_model_loaded",
            "1 for each model version that can answer.",
            ("version",),
            registry=registry,
        )
        self._draining = Gauge(
            "longtail_model_draining",
            "Models that are served no more but are still held by requests.",
            ("version",),
            registry=registry,
        )
        self._share = Gauge(
            "longtail_model_traffic_share",
            "Share of the requests naming no version that a version gets.",
            ("version",),
            registry=registry,
        )
        self._load_seconds = Histogram(
            "longtail_model_load_duration_seconds",
            "From the decision to load a version to its first answers, by how it ended.",
            ("result",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._changes = Counter(
            "longtail_model_changes",
            "Changes of what is served, by what was asked for and how it ended.",
            ("action", "result"),
            registry=registry,
        )
        self._overlap = Gauge(
            "longtail_model_probe_overlap",
            "Share of the best labels of known texts that a version has in common with the one "
            "that was the default when it was loaded.",
            ("version",),
            registry=registry,
        )
        self._registry_problem = Gauge(
            "longtail_registry_problem",
            "1 while the registry's alias can't be followed.",
            registry=registry,
        )

    def set_models(
        self, loaded: Iterable[int], shares: Mapping[int, float], draining: Mapping[int, int]
    ) -> None:
        """Set which versions can answer, the share that each gets, and which are still held.

        Args:
            loaded: The versions that can answer.
            shares: Share of the requests naming no version, by version.
            draining: Old models of each version that are still in use.
        """
        for gauge in (self._loaded, self._draining, self._share):
            gauge.clear()
        for version in loaded:
            self._loaded.labels(str(version)).set(1)
        for version, count in draining.items():
            if count:
                self._draining.labels(str(version)).set(count)
        for version, share in shares.items():
            self._share.labels(str(version)).set(share)

    def observe_load(self, result: str, seconds: float) -> None:
        """Count one load."""
        self._load_seconds.labels(result).observe(seconds)

    def count_change(self, action: str, result: str) -> None:
        """Count one change."""
        self._changes.labels(action, result).inc()

    def set_overlap(self, version: int, share: float) -> None:
        """Say how far a version agrees with the one that it was compared with."""
        self._overlap.labels(str(version)).set(share)

    def set_registry_problem(self, is_problem: bool) -> None:
        """Say whether the registry can't be followed."""
        self._registry_problem.set(is_problem)
