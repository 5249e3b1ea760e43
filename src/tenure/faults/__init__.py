"""Verbs that break things on purpose: connections through `Proxy`, processes through `tenure.faults.process`.

For tests and demonstrations; the standard library is all that it needs.
"""

from __future__ import annotations

from tenure.faults.policy import Direction, Script, Verdict
from tenure.faults.proxy import Proxy

__all__ = ["Direction", "Proxy", "Script", "Verdict"]
