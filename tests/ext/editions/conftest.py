"""A small bundle, as the tests of models have it."""

from tests.models.conftest import (  # noqa: F401  # fixtures
    bundle,
    constant_blend,
    dual_encoder,
    manifest,
    parts,
    tokenizer,
    written_bundle,
)
