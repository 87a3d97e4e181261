"""Compiles the C sources of this folder into one shared library for each level of processor.

`setup.py` runs it for a wheel; a checkout runs it when its sources have changed (see
`longtail.models.native.library`). A C compiler is the only need: `cc`, what `CC` names, or the
package `ziglang`, which brings one to any machine that has pip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
# Without -g0, zig adds debug information, and with it the paths of the build, which is to be equal.
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-g0")
# The same sums in the same order, on every processor and with every compiler.
_EXACT = ("-ffp-contract=off",)
# Sources `fast_*.c`: sums may be taken in another order, so that loops become vector instructions.
_FAST = ("-ffp-contract=fast", "-fassociative-math", "-fno-signed-zeros")
# Only where LONGTAIL_STRICT=1 asks: the compiler of a user may warn of more.
_STRICT = ("-Wall", "-Wextra", "-Werror")
_SANITIZED = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
_ENDINGS = {"win32": "dll", "windows": "dll", "darwin": "dylib", "macos": "dylib"}


def find_compiler(target: str | None = None) -> list[str] | None:
    """Return the command of a C compiler; None where there is none.

    Args:
        target: What to compile for, as zig names it, which then does it; None: this machine.
    """
    if target is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", target]
    if command := os.environ.get("CC"):
        return shlex.split(command)
    if found := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"):
        return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def levels(target: str | None = None) -> tuple[str, ...]:
    """Return the levels of this machine's kind of processor, or another's, the lowest first."""
    machine = (target or platform.machine()).split("-")[0].lower()
    return ("v1", "v3") if machine in {"x86_64", "amd64"} else ("v1",)


def is_sanitized() -> bool:
    """Return whether the kernels stop at an address or behaviour that C forbids."""
    return os.environ.get("LONGTAIL_SANITIZE") == "1"


def library_path(folder: Path, level: str, target: str | None = None) -> Path:
    """Return where the library of a level belongs; its name changes with the sources."""
    digest = hashlib.sha256()
    for source in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h"), FOLDER / "build.py"]):
        digest.update(source.read_bytes())
    system = target.split("-")[1].split(".")[0] if target else sys.platform
    ending = _ENDINGS.get(system, "so")
    name = "sanitized" if is_sanitized() else "kernels"
    return folder / f"{name}-{digest.hexdigest()[:12]}-{level}.{ending}"


def build(folder: Path = FOLDER, target: str | None = None) -> None:
    """Compile the library of each level of this machine's processors.

    Args:
        folder: Where they are written; libraries of other sources there are removed.
        target: What to compile for (see `find_compiler`).
    """
    compiler = find_compiler(target)
    if compiler is None:
        raise RuntimeError(
            "the C sources of longtail have to be compiled and there is no C compiler (cc, gcc, "
            "clang or $CC): install one, or run 'pip install ziglang'"
        )
    folder.mkdir(parents=True, exist_ok=True)
    current = {level: library_path(folder, level, target) for level in levels(target)}
    kind = next(iter(current.values())).name.split("-")[0]
    for old in set(folder.glob(f"{kind}-*-v*")) - set(current.values()):
        old.unlink(missing_ok=True)
    is_strict = os.environ.get("LONGTAIL_STRICT") == "1"
    more = [*(_STRICT if is_strict else ()), *(_SANITIZED if is_sanitized() else ())]
    for level, path in current.items():
        if not path.exists():
            flags = [] if level == "v1" else [_flag_of(level, compiler)]
            _compile(compiler, [*flags, *more], path)


def _flag_of(level: str, compiler: list[str]) -> str:
    name = f"x86-64-{level}"
    return f"-march={name.replace('-', '_') if 'ziglang' in compiler else name}"


def _compile(compiler: list[str], flags: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        # Else zig keeps a cache at home, where nothing may be writable.
        environment = {"ZIG_GLOBAL_CACHE_DIR": work, **os.environ}

        def compile_one(source: Path) -> str:
            target = str(Path(work, source.stem + ".o"))
            kind = _FAST if source.stem.startswith("fast_") else _EXACT
            command = [*compiler, *_FLAGS, *kind, *flags, "-c", str(source), "-o", target]
            _run(command, environment)
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted(FOLDER.glob("*.c"))))
        more = [] if path.suffix == ".dll" else ["-lm"]
        more += ["-s"] if "ziglang" in compiler and not is_sanitized() else []  # of zig's own parts
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as beside:
            # Some systems' libraries hold the path that they are written to.
            command = [*compiler, "-shared", *flags, *objects, *more, "-o", path.name]
            _run(command, environment, beside)
            Path(beside, path.name).replace(path)  # at once: others may build the same file


def _run(command: list[str], environment: dict[str, str], folder: str | None = None) -> None:
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")
