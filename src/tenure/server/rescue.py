"""What becomes of the jobs when somebody takes the data file away under a running server."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tenure.engine.log import Log
from tenure.engine.store import DbError


def rescue(log: Log, path: str, wall: int) -> str:
    """Copy what is stored to a file of its own beside `path`, and return what a person is to do with it.

    A file that was removed is gone for good once the last process that has it open has closed it.
    """
    saved = f"{path}.saved-{wall}"
    try:
        log.save(saved)
    except DbError as error:
        with contextlib.suppress(OSError):
            Path(saved).unlink(missing_ok=True)
        return (
            f"All that it had stored could not be copied to {saved} ({error}): put the file, or an older copy of it, "
            f"back to {path}, and start the server again"
        )
    return (
        f"All that it had stored is in {saved}: move that to {path} and start the server again, or remove it if "
        "those jobs are not wanted"
    )
