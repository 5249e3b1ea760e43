"""Who has to hear of a fork: what holds sockets or locks that a child must not share."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forks(Protocol):
    """Something that holds sockets or locks which a forked child must not share."""

    def after_fork(self) -> None: ...


_told: WeakSet[Forks] = WeakSet()


def tell_of_forks(one: Forks) -> None:
    """Have `one.after_fork()` called in every child that this process forks."""
    _told.add(one)


def _after_fork() -> None:
    for one in list(_told):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
