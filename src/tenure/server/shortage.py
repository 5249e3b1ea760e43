"""Watches the room that is left for the data file, and tells of it when it runs short and when it is there again."""

from __future__ import annotations

import logging

from tenure.engine.engine import Engine
from tenure.engine.store import DbFull

log = logging.getLogger("tenure.server")

MIB = 1024 * 1024


class Shortage:
    """Looked at before each turn; one line in the log for each change."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told = (False, False)

    def look(self, mono: float) -> None:
        """Let the engine see what is free, and say what follows from it where that has changed."""
        self._engine.look_at_space(mono)
        space = self._engine.space
        now = space.refusing, space.holding
        if now != self._told:
            self._told = now
            self._tell(*now)

    def met(self, error: Exception, mono: float) -> None:
        """Take note of what a transaction was undone for: a full disk is told from other faults of the store."""
        if isinstance(error, DbFull):
            self._engine.space.fill(mono)

    def _tell(self, refusing: bool, holding: bool) -> None:
        space = self._engine.space
        free = f"{space.room / MIB:.1f} MiB are free for the data file"
        if holding:
            log.error(
                "%s: no job is handed out until there is more, so that those that run can be ended; make room on its "
                "disk (new jobs need %.1f MiB, see --reserve)",
                free,
                space.wanted / MIB,
            )
        elif refusing:
            log.warning(
                "%s: new jobs are refused until %.1f MiB are free, while those that are there go on",
                free,
                space.wanted / MIB,
            )
        else:
            log.info("%s: new jobs are taken again", free)
