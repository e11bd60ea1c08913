"""The compilers of submissions: the C++ compiler, and the CUDA toolkit if there is one.

Toolkits are tried in this order: CUDA_HOME (or CUDA_PATH), the system's, the one that PyPI's `cuda-toolkit` installs
beside torch. PyTorch refuses to compile with a toolkit of a major version other than its own: such a system toolkit is
skipped, and such a CUDA_HOME is an error.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader import ending
from grader.errors import UserError
from grader.verdict.value import digest

_PYPI_PARTS = "nvcc,cudart,cccl,nvvm,crt"
"""The parts of the toolkit that compiling an extension needs and torch's wheel does not contain."""

CUTLASS_VERSION = "include/cutlass/version.h"
_SYSTEM_HOMES = (Path("/usr/local/cuda"), Path("/opt/cuda"))
"""Where installers put toolkits without adding nvcc to PATH."""


SHARED_HEADERS = Path(__file__).parents[1] / "device_code"
"""Device code that every submission can include, as `<kernels/conv2d.cuh>`."""


@dataclass(frozen=True)
class Toolchain:
    """Compilers with their versions; None for an absent one."""

    cxx_version: str | None
    """`g++ (Debian 12.2.0-14) 12.2.0`."""
    cuda_home: Path | None
    """A folder with bin/nvcc and include/cuda_runtime.h."""
    nvcc_version: str | None
    """`13.0.88`."""
    torch_version: str
    headers: tuple[str, ...] = ()
    """Names in the toolkit's include folder: installations of one version may be partial."""
    cutlass: Path | None = None
    """A folder with include/cutlass/cutlass.h."""
    shared_headers: str = ""
    """Digest of the device code that the grader offers to every submission."""

    @property
    def hash(self) -> str:
        """Changes with everything that may change a compiler's output; paths do not count."""
        versions = (self.cxx_version, self.nvcc_version, self.torch_version, platform.python_version())
        cutlass = digest((self.cutlass / CUTLASS_VERSION).read_text()) if self.cutlass else None
        return digest(repr((*versions, platform.machine(), self.headers, cutlass, self.shared_headers)))


@cache
def find_toolchain() -> Toolchain:
    """The toolchain of this machine, found once. Raises UserError for a CUDA_HOME that torch cannot use."""
    cxx, cuda_home = find_cxx(), find_cuda_home()
    return Toolchain(
        cxx_version=_first_line([str(cxx), "--version"]) if cxx else None,
        cuda_home=cuda_home,
        nvcc_version=_nvcc_version(cuda_home) if cuda_home else None,
        torch_version=importlib.metadata.version("torch"),
        headers=tuple(sorted(path.name for path in (cuda_home / "include").iterdir())) if cuda_home else (),
        cutlass=find_cutlass(),
        shared_headers=digest("".join(path.read_text() for path in sorted(SHARED_HEADERS.rglob("*.cuh")))),
    )


def find_cutlass() -> Path | None:
    """CUTLASS's folder: CUTLASS_PATH, else the one in PyPI's `nvidia-cutlass` or `tilelang`.

    Raises UserError for a CUTLASS_PATH without its headers.
    """
    named = os.environ.get("CUTLASS_PATH")
    if named:
        if not (Path(named) / CUTLASS_VERSION).is_file():
            raise UserError(f"CUTLASS_PATH={named}: no {CUTLASS_VERSION} there; correct it, or unset it")
        return Path(named)
    for package, folder in (("cutlass_library", "source"), ("tilelang", "3rdparty/cutlass")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(place) / folder / CUTLASS_VERSION).is_file():
                return Path(place) / folder
    return None


def find_cxx() -> Path | None:
    """The compiler that torch uses: CXX, else `c++`."""
    path = shutil.which(shlex.split(os.environ.get("CXX") or "c++")[0])
    return Path(path) if path else None


def find_cuda_home() -> Path | None:
    """The toolkit's folder, if there is one. Raises UserError for a CUDA_HOME that torch cannot use."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return _checked(Path(named))
    return next((home for home in (*_system_toolkits(), *_pypi_toolkits()) if _fits(home)), None)


def pypi_requirement() -> str | None:
    """The requirement to install if there is no toolkit, at the CUDA version that torch's packages pin.

    None for a torch without CUDA, which cannot compile CUDA submissions.
    """
    if torch_cuda_version() is None:
        return None
    for line in importlib.metadata.requires("torch") or []:
        pinned = re.match(r"cuda-toolkit\[[^]]*\]\s*==\s*([\d.]+)", line)
        if pinned:
            return f"cuda-toolkit[{_PYPI_PARTS}]=={pinned[1]}"
    return f"cuda-toolkit[{_PYPI_PARTS}]=={torch_cuda_version()}.*"


def torch_cuda_version() -> str | None:
    """`13.0`; None for a torch without CUDA. Read from a file, because importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found = re.search(r"^cuda\b.*?= '([\d.]+)'", Path(spec.origin).with_name("version.py").read_text(), re.MULTILINE)
    return found[1] if found else None


# ---------------------------------------------------------------------------------------------------- toolkits


def _checked(home: Path) -> Path:
    if not _is_toolkit(home):
        raise UserError(f"CUDA_HOME={home}: no bin/nvcc with include/cuda_runtime.h there; correct it, or unset it")
    if not _fits(home):
        raise UserError(
            f"CUDA_HOME={home}: CUDA {_nvcc_version(home)}, while torch is built with {torch_cuda_version()}; "
            "name a toolkit of the same major version, or unset it"
        )
    return home


def _system_toolkits() -> list[Path]:
    nvcc = shutil.which("nvcc")
    candidates = [_home_of(Path(nvcc)) if nvcc else None, *_SYSTEM_HOMES]
    return [home for home in candidates if home and _is_toolkit(home)]


def _home_of(nvcc: Path) -> Path | None:
    """The toolkit behind an nvcc on PATH, which may be a link or a script that starts the real one."""
    home = nvcc.resolve().parent.parent
    if _is_toolkit(home):
        return home
    with ending.postponed(), tempfile.TemporaryDirectory() as scratch:  # for files that an interrupted dry run leaves
        steps = _output([str(nvcc), "--dryrun", "none.cu"], TMPDIR=scratch)
    top = re.search(r"^#\$ TOP=(.+)$", steps, re.MULTILINE)
    return Path(top[1]).resolve() if top else None


def _pypi_toolkits() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return [home for place in places for home in sorted(Path(place).glob("cu[0-9]*")) if _is_toolkit(home)]


def _is_toolkit(home: Path) -> bool:
    return (home / "bin" / "nvcc").is_file() and (home / "include" / "cuda_runtime.h").is_file()


def _fits(home: Path) -> bool:
    nvcc, torch = _nvcc_version(home), torch_cuda_version()
    return nvcc is not None and torch is not None and nvcc.split(".")[0] == torch.split(".")[0]


@cache
def _nvcc_version(home: Path) -> str | None:
    found = re.search(r"\bV([\d.]+)", _output([str(home / "bin" / "nvcc"), "--version"]))
    return found[1] if found else None


# ---------------------------------------------------------------------------------------------------- commands


def _output(command: list[str], **environment: str) -> str:
    """Stdout and stderr together; empty if the command cannot be run."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _first_line(command: list[str]) -> str | None:
    return next(iter(_output(command).splitlines()), None)


if __name__ == "__main__":
    # For the Makefile: the missing requirement in pip's syntax; nothing if a toolkit is there.
    sys.stdout.write("" if find_cuda_home() else pypi_requirement() or "")
