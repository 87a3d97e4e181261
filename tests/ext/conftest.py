"""What tests of extensions share with those of the service."""

import pytest

from tests.service.conftest import (  # noqa: F401  # fixtures
    _without_libraries_and_settings,
    client,
    fake_label_score,
    fake_predictor,
    fresh_client,
    keys,
    make_loader,
    open_admin,
    open_client,
    open_server,
    publish,
    registry,
    server,
    start_server,
    two_versions,
    wait_for_loading,
)
from tests.training.conftest import write_feedback  # noqa: F401


@pytest.fixture
def open_feedback(open_admin, tmp_path):  # noqa: F811  # the fixture
    """Starts the service with a folder for feedback."""
    return lambda loader=None, **settings: open_admin(
        loader, **{"feedback": tmp_path / "feedback", "feedback_texts": True} | settings
    )
