"""What tests of extensions share with those of the service."""

from tests.service.conftest import (  # noqa: F401  # fixtures
    _without_libraries_and_settings,
    client,
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
from tests.service.feedback.conftest import make_entry, open_feedback  # noqa: F401
from tests.training.conftest import write_feedback  # noqa: F401
