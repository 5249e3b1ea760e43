"""Verbs that break things on purpose: connections through `Proxy`, processes through `tenure.faults.process`.

A `Fault` is one of the proxy's verbs as a value, and a `Schedule` a random order of them.  For tests and
demonstrations; the standard library is all that it needs.
"""

from __future__ import annotations

from tenure.faults.clock import MovedClock
from tenure.faults.disk import SmallDisk, small_disk
from tenure.faults.policy import Direction, Script, Verdict
from tenure.faults.proxy import Proxy
from tenure.faults.schedule import Schedule, Turn, run_schedule
from tenure.faults.verbs import Fault, parse_fault, perform

__all__ = [
    "Direction",
    "Fault",
    "MovedClock",
    "Proxy",
    "Schedule",
    "Script",
    "SmallDisk",
    "Turn",
    "Verdict",
    "parse_fault",
    "perform",
    "run_schedule",
    "small_disk",
]
