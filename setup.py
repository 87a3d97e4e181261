"""Adds the compiled kernels to wheels; all else about the package is in pyproject.toml."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

native = runpy.run_path(str(Path(__file__).parent / "longtail/models/native/build.py"))


class BuildWithKernels(build_py):
    """Compiles the C sources beside their copies, or beside themselves in an editable install."""

    def run(self) -> None:
        """Copy the Python files, then compile."""
        super().run()
        in_place = getattr(self, "editable_mode", False)
        native["build"](
            native["FOLDER"] if in_place else Path(self.build_lib, "longtail/models/native")
        )


class PlatformWheel(bdist_wheel):
    """Tags a wheel for one platform and every version of Python, whose API no kernel uses."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags."""
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """A package with compiled code."""

    def has_ext_modules(self) -> bool:
        """Return that there is some."""
        return True


setup(
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
    distclass=PlatformDistribution,
    setup_requires=[] if native["find_compiler"]() else ["ziglang>=0.13,<0.18"],
)
