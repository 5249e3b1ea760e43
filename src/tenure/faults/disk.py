"""A small disk that can be full: a file system in memory of its own, or a limit that comes close to one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

How = Literal["mounted", "namespace", "file limit"]
"""How a small disk was made: see `SmallDisk`."""

_BLOCK = 64 * 1024
_HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
"""A shell's commands: mount, say so, and keep the namespace until the input ends."""
_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class SmallDisk:
    """A folder on a disk that takes `size` bytes, or what comes closest to it on this machine; `how` tells which.

    `mounted`: a real file system, which only root may mount.  `namespace`: the same in a user namespace; only
    processes started with `command` see it at `folder`, all others at `seen`.  `file limit`: where neither is allowed,
    no file of a process started with `command` grows above `size`; what it writes then fails with EFBIG instead of
    ENOSPC, and `fill` and `free` have nothing to do.
    """

    def __init__(self, folder: Path, size: int, how: How, holder: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self.size = size
        self.how = how
        self._holder = holder

    @property
    def seen(self) -> Path:
        """Where a process that was not started with `command` finds the folder."""
        return self.folder if self._holder is None else Path(f"/proc/{self._holder.pid}/root{self.folder}")

    def command(self, args: Sequence[str]) -> list[str]:
        """Return the command that runs `args` where the small disk is."""
        if self._holder is not None:
            within = ["--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials", "--wd=."]
            return ["nsenter", *within, "--", *args]
        if self.how == "file limit":
            return [sys.executable, "-S", "-c", _LIMITED, str(self.size), *args]
        return list(args)

    def fill(self, leave: int = 0) -> None:
        """Fill the disk until at most `leave` bytes are free."""
        if self.how == "file limit":
            return
        with (self.seen / ".filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while (room := self.free_bytes() - leave) > 0:
                file.write(bytes(min(room, _BLOCK)))

    def free(self) -> None:
        """Take back what `fill` wrote."""
        (self.seen / ".filler").unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""
        return shutil.disk_usage(self.seen).free


@contextlib.contextmanager
def small_disk(size: int, ways: Sequence[How] = ("mounted", "namespace", "file limit")) -> Iterator[SmallDisk]:
    """Make a small disk of `size` bytes for a `with` block, in the first of `ways` that this machine allows.

    Raises OSError where it allows none of them.  End what runs there before the block ends.
    """
    with tempfile.TemporaryDirectory(prefix="tenure-disk-") as name, contextlib.ExitStack() as stack:
        folder = Path(name).resolve()
        makers = {"mounted": _mounted, "namespace": _in_namespace, "file limit": _limited}
        disk = next((disk for way in ways if (disk := makers[way](folder, size, stack)) is not None), None)
        if disk is None:
            raise OSError(f"this machine allows no small disk ({' or '.join(ways)}); give the way 'file limit' as well")
        yield disk


def _mounted(folder: Path, size: int, stack: contextlib.ExitStack) -> SmallDisk | None:
    if not _done("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        return None
    # Lazily: a process that still has a file open there keeps the disk, and not this one.
    stack.callback(_done, "umount", "--lazy", str(folder))
    return SmallDisk(folder, size, "mounted")


def _in_namespace(folder: Path, size: int, stack: contextlib.ExitStack) -> SmallDisk | None:
    hold = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh", str(size), str(folder)]
    try:
        pipe = subprocess.PIPE
        holder = subprocess.Popen(hold, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603  (own words)
    except FileNotFoundError:
        return None
    stack.enter_context(holder)  # closes its input, which ends it, and collects it
    assert holder.stdout is not None
    return SmallDisk(folder, size, "namespace", holder) if holder.stdout.readline() == b"mounted\n" else None


def _limited(folder: Path, size: int, stack: contextlib.ExitStack) -> SmallDisk:
    return SmallDisk(folder, size, "file limit")


def _done(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603  (own words)
    except FileNotFoundError:
        return False
