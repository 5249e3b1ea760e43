"""Verbs that break things on purpose: connections through `Proxy`, processes through `tenure.faults.process`.

For tests and demonstrations; the standard library is all that it needs.
"""

from __future__ import annotations

from tenure.faults.policy import Direction, Script, Verdict
from tenure.faults.proxy import Proxy
from tenure.faults.schedule import Schedule, Turn, run_schedule
from tenure.faults.verbs import Fault, parse_fault, perform

__all__ = [
    "Direction",
    "Fault",
    "Proxy",
    "Schedule",
    "Script",
    "Turn",
    "Verdict",
    "parse_fault",
    "perform",
    "run_schedule",
]
