"""How many functions a request passes: more are a layer that somebody added to every request."""

from __future__ import annotations

from pathlib import Path


def test_a_title_passes_few_functions(trained_sparse, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from request_path import traced_calls

    # A busy machine takes longer, and the service then looks whether the client is still there.
    monkeypatch.setattr("longtail.service.http.deps._WATCHED_FROM_S", 60)
    calls = traced_calls(trained_sparse.registry.folder)
    assert ("longtail.service.routes.predict", "predict") in calls
    assert len(calls) <= 190  # some are those that check types at run time
    assert len({module for module, _ in calls}) <= 50
