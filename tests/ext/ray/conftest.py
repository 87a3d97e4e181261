"""What tests of Ray share with those of Parquet parts."""

from tests.service.offline.test_parts import parts, place  # noqa: F401  # fixtures
