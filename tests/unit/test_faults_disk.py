"""Small disks, in each of the ways that the machine allows."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tenure.faults.disk import How, SmallDisk, small_disk

MIB = 1024**2
WRITES = """
import os, sys
file = os.open(os.path.join(sys.argv[1], "data"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
try:
    for _ in range(int(sys.argv[2])):
        os.write(file, bytes(65536))
    print(0)
except OSError as error:
    print(error.errno)
"""


def write(disk: SmallDisk, blocks: int) -> int:
    """Append so many blocks of 64 KiB in another process; returns the number of the error, 0 for none."""
    command = disk.command([sys.executable, "-c", WRITES, str(disk.folder), str(blocks)])
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_some_small_disk_can_be_had_anywhere() -> None:
    with small_disk(2 * MIB) as disk:
        assert write(disk, 16) == 0
        full = errno.EFBIG if disk.how == "file limit" else errno.ENOSPC
        assert write(disk, 32) == full
        assert 1.5 * MIB < (disk.seen / "data").stat().st_size <= 2 * MIB
    assert not disk.folder.exists()


def test_a_limit_of_files_needs_no_rights() -> None:
    with small_disk(2 * MIB, ways=("file limit",)) as disk:
        assert (write(disk, 16), write(disk, 32)) == (0, errno.EFBIG)
        assert (disk.seen / "data").stat().st_size == 2 * MIB
        disk.fill()
        disk.free()
        assert [file.name for file in disk.folder.iterdir()] == ["data"]


@pytest.fixture(params=["mounted", "namespace"])
def disk(request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    way: How = request.param
    with small_disk(2 * MIB, ways=(way, "file limit")) as disk:
        yield disk


def test_a_disk_is_full_and_has_room_again(disk: SmallDisk) -> None:
    assert write(disk, 4) == 0
    disk.fill(leave=128 * 1024)
    if disk.how == "file limit":  # the machine allows no better: then this is no more than the test above
        return
    assert disk.free_bytes() <= 128 * 1024
    assert write(disk, 8) == errno.ENOSPC
    disk.free()
    assert disk.free_bytes() > MIB
    assert write(disk, 8) == 0


def test_a_disk_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(OSError, match="allows no small disk"), small_disk(2 * MIB, ways=()):
        raise AssertionError("there is none")
