"""The measurements by name, in the order in which they are made and shown."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks import adding, draining, growing, resting, storing
from tests.benchmarks.report import Figure
from tests.benchmarks.stage import Bench

Measure = Callable[[Bench], list[Figure]]

SHORT: dict[str, Measure] = {
    "limits": adding.limits,
    "delay-normal": lambda bench: adding.delay(bench, "normal"),
    "delay-full": lambda bench: adding.delay(bench, "full"),
    "add-many-normal": lambda bench: adding.add_many(bench, "normal"),
    "add-many-full": lambda bench: adding.add_many(bench, "full"),
    "crowd": adding.crowd,
    "drain-normal": lambda bench: draining.drain(bench, "normal"),
    "drain-full": lambda bench: draining.drain(bench, "full"),
    "drain-async": draining.drain_coroutines,
    "rest": resting.rest,
    "import": resting.imported,
}
LONG: dict[str, Measure] = {
    "backlog": growing.backlog,
    "scheduled": growing.scheduled,
    "parked": growing.crowded,
    "teams": growing.teams,
    "store": storing.store,
}
"""What takes minutes each."""
