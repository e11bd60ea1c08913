"""Files that a submission's compilers leave: extensions, and caches of just-in-time compilers.

Both are packed into one archive, which only gradings of the same source get back. The referee never reads it.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path

CACHES = ("triton", "torchinductor", "cupy", "numba", "cuda", "cute", "tilelang")
"""Folders in XDG_CACHE_HOME that the sandbox's environment names, one for each compiler. `cuda` is the driver's."""
_LIBRARIES, _CACHES = "libraries", "caches"


class Kept:
    """The files that an earlier process of the same submission left, and those that this one adds."""

    def __init__(self, scratch: Path) -> None:
        self._root = Path(os.environ.get("XDG_CACHE_HOME", scratch / ".cache"))
        self._folder = scratch / "bundle"
        self.libraries: dict[str, Path] = {}
        """Extensions by fingerprint: those that came, and those that were built here."""
        self._came = set[Path]()

    def take(self, descriptor: int) -> None:
        """Unpack an archive, a damaged one as far as it goes.

        Only the submission itself can have caused damage.
        """
        with os.fdopen(descriptor, "rb") as file, contextlib.suppress(tarfile.TarError, OSError):
            archive = tarfile.TarFile(fileobj=file)
            for member in archive:
                self._unpack(archive, member)
        self._came = set(self._cached())

    def _unpack(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        kind, _, name = member.name.partition("/")
        content = archive.extractfile(member)
        if content is None:
            return
        path = self._folder / Path(name).name if kind == _LIBRARIES else self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.read())
        path.chmod(member.mode)
        os.utime(path, (member.mtime, member.mtime))  # Numba compares it
        if kind == _LIBRARIES:
            self.libraries[path.stem] = path

    def _cached(self) -> list[Path]:
        files = (path for name in CACHES for path in (self._root / name).rglob("*"))
        return sorted(path for path in files if path.is_file() and not path.is_symlink())

    def added(self) -> int:
        """The number of files that just-in-time compilers have added to their caches in this process."""
        return sum(path not in self._came for path in self._cached())

    def give(self, descriptor: int) -> int:
        """Pack everything that there is; return the size in bytes, 0 if there is nothing."""
        files = [(f"{_LIBRARIES}/{key}.so", path) for key, path in self.libraries.items()]
        files += [(f"{_CACHES}/{path.relative_to(self._root)}", path) for path in self._cached()]
        if not files:
            os.close(descriptor)
            return 0
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:") as archive:
                for name, path in files:
                    archive.add(path, arcname=name, recursive=False)
            return file.tell()
