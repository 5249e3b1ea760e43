"""Memory that two processes may share."""

from __future__ import annotations

import os
import tempfile


def anonymous_file(size: int) -> int:
    """Return the descriptor of a file of so many bytes, all zero, that has no name and goes with the last user."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tenure-table", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
