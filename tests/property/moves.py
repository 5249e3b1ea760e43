"""Sees every change of a job's state in an engine, by triggers on its table."""

from __future__ import annotations

from tenure.engine.engine import Engine
from tenure.engine.states import MOVES, RUNNING

Step = tuple[int, int, int]
"""The states before and after, and how the hand-out ended that ended with it; 0: none."""

ALLOWED: frozenset[Step] = frozenset((move.before or 0, move.after or 0, move.how or 0) for move in MOVES)

_EVENTS = {
    "added": ("INSERT", "TRUE", "0, NEW.state, 0"),
    "moved": (
        "UPDATE OF state", "OLD.state <> NEW.state", f"OLD.state, NEW.state, iif(OLD.state = {RUNNING}, NEW.how, 0)",
    ),
    "removed": ("DELETE", "TRUE", "OLD.state, 0, 0"),
}  # fmt: skip
_LISTED = ", ".join(str(step) for step in sorted(ALLOWED))


def watch(engine: Engine) -> None:
    """Note all moves of an engine's jobs from now on."""
    engine._store.execute("CREATE TEMP TABLE moves (before, after, how)")
    for name, (event, when, step) in _EVENTS.items():
        engine._store.execute(
            f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.jobs WHEN {when} "
            f"BEGIN INSERT INTO moves VALUES ({step}); END"
        )


def seen(engine: Engine) -> set[Step]:
    """Return which moves there were since it is watched."""
    return set(engine._store.rows("SELECT DISTINCT before, after, how FROM moves"))


def hold_to_the_table(engine: Engine) -> None:
    """Have the store refuse, with an error that names it, every move that is not in the table."""
    for name, (event, when, step) in _EVENTS.items():
        engine._store.execute(
            f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.jobs "
            f"WHEN {when} AND ({step}) NOT IN (VALUES {_LISTED}) "
            f"BEGIN SELECT RAISE(ABORT, 'no such move between states: {event}'); END"
        )
