"""The folder through which ranks pass files: private to one user, written atomically, never trusted blindly."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from distdoctor.errors import OutputError

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# One block: enough to notice a full file system before work starts.
_PROBE = b"\0" * 4096

_TEMPORARY = ".t."

# Longer than any gathering waits. Our own choice.
_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S


class GatherFolder:
    """A folder of one launch. Every call opens it afresh, which also makes NFS ask its server again.

    All methods raise OSError as the system does: FileNotFoundError when somebody removed the folder.
    """

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        self.shared = shared

    def write(self, name: str, data: bytes) -> None:
        """Put a whole file there or nothing: written aside, then renamed. On shared storage also synced."""
        with self._opened() as folder:
            temporary = _TEMPORARY + secrets.token_hex(8)
            try:
                self._create(folder, temporary, data)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            if self.shared:
                _sync(folder)

    def claim(self, name: str, data: bytes) -> bool:
        """Create a file that nobody has created before: True for exactly one of all callers."""
        with self._opened() as folder:
            try:
                self._create(folder, name, data)
            except FileExistsError:
                return False
            return True

    def read(self, name: str, max_bytes: int) -> bytes:
        """Content of a plain file. Raises ValueError above `max_bytes` or when it is no plain file."""
        with self._opened() as folder:
            # O_NONBLOCK: a FIFO put in our way must not hold us.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
                found = os.fstat(stream.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise ValueError(f"{name} is not a plain file")
                if found.st_size > max_bytes:
                    raise ValueError(f"{name} has {found.st_size} bytes, more than {max_bytes}")
                data = stream.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ValueError(f"{name} has more than {max_bytes} bytes")
        return data

    def names(self) -> list[str]:
        """Names of all files there, in no order."""
        with self._opened() as folder:
            return os.listdir(folder)  # noqa: PTH208 - of a descriptor, not of a path

    def refresh(self) -> None:
        """On shared storage: change the folder, so that the NFS client drops what it remembers of it."""
        if not self.shared:
            return
        with contextlib.suppress(OSError), self._opened() as folder:
            name = _TEMPORARY + secrets.token_hex(8)
            os.close(os.open(name, _NEW_FILE_FLAGS, 0o600, dir_fd=folder))
            os.unlink(name, dir_fd=folder)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those already gone are fine."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def remove_itself(self) -> None:
        """Remove the folder if it is empty."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _create(self, folder: int, name: str, data: bytes) -> None:
        with os.fdopen(os.open(name, _NEW_FILE_FLAGS, 0o600, dir_fd=folder), "wb") as stream:
            stream.write(data)
            stream.flush()
            if self.shared:
                os.fsync(stream.fileno())

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.path, _DIRECTORY_FLAGS)
        try:
            yield folder
        finally:
            os.close(folder)


# A launch that ends may remove its folder while the next one of the same name begins.
_ATTEMPTS = 3


def private_folder(digest: str) -> GatherFolder:
    """The folder of this launch below the temporary directory, made if need be; mode 0700 and ours.

    Its name can be guessed, so anybody could have made it first: a link, a folder of another user, or one
    that others may enter is refused with OutputError, as is a temporary directory that cannot be written.
    """
    base = Path(tempfile.gettempdir())
    path = base / f"distdoctor-{os.geteuid()}-{digest}"
    return _retried(path, lambda: _private(GatherFolder(path, shared=False)))


def remove_old_folders() -> None:
    """Remove private folders of ours that earlier launches left: without announcements after an hour, any
    after a day. A launch that lacked a rank leaves one, for that rank may come late.
    """
    now = time.time()
    for path in Path(tempfile.gettempdir()).glob(f"distdoctor-{os.geteuid()}-*"):
        folder = GatherFolder(path, shared=False)
        with contextlib.suppress(OSError):
            with folder._opened() as opened:
                found = os.fstat(opened)
            names = folder.names()
            announced = any(name.startswith("a.") for name in names)
            age_s = now - found.st_mtime
            if found.st_uid == os.geteuid() and age_s > (_DAY_S if announced else _HOUR_S):
                folder.remove(names)
                folder.remove_itself()


def _private(folder: GatherFolder) -> GatherFolder:
    _make(folder.path)
    with folder._opened() as opened:
        found = os.fstat(opened)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise OutputError(
            f"`{folder.path}` is not a private folder of this user",
            hint="remove it, or set TMPDIR to a folder of your own, the same for all ranks of a host",
        )
    _probe(folder)
    return folder


def shared_folder(parent: Path, digest: str) -> GatherFolder:
    """The folder of this launch below `parent` on shared storage, made if need be, mode 0700.

    Raises OutputError when it cannot be made or written, is a link, or belongs to somebody else. NFS may map
    root to another owner, so the owner is compared with that of a file which we make in it.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(parent, error) from error
    path = parent / f"distdoctor-{digest}"
    return _retried(path, lambda: _shared(GatherFolder(path, shared=True)))


def _shared(folder: GatherFolder) -> GatherFolder:
    _make(folder.path)
    owner = _probe(folder)
    with folder._opened() as opened:
        found = os.fstat(opened)
    if found.st_uid != owner or stat.S_IMODE(found.st_mode) & 0o022:
        raise OutputError(
            f"`{folder.path}` belongs to somebody else or can be written by others",
            hint="give --gather another folder, or remove this one",
        )
    return folder


def _make(path: Path) -> None:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    # A umask may have taken bits away that we need; nothing is added for others.
    with contextlib.suppress(OSError):
        path.chmod(0o700)


def _probe(folder: GatherFolder) -> int:
    """Write and remove one block; the owner of what we write."""
    name = _TEMPORARY + secrets.token_hex(8)
    with folder._opened() as opened:
        try:
            folder._create(opened, name, _PROBE)
            return os.stat(name, dir_fd=opened, follow_symlinks=False).st_uid
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=opened)


def _retried(path: Path, make: Callable[[], GatherFolder]) -> GatherFolder:
    for attempt in range(_ATTEMPTS):
        try:
            return make()
        except FileNotFoundError as error:
            if attempt == _ATTEMPTS - 1:
                raise _cannot_write(path, error) from error
        except OSError as error:
            raise _cannot_write(path, error) from error
    raise AssertionError("unreachable")


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot gather results in `{path}`: {error.strerror or error}",
        hint="give --gather a folder that every rank can write, or set TMPDIR to one for the ranks of a host",
    )


def _sync(folder: int) -> None:
    # Some network file systems do not sync folders; the file itself is synced already.
    with contextlib.suppress(OSError):
        os.fsync(folder)
