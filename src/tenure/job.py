"""The handle that `.delay()` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Job(Generic[R_co]):
    """One call of a task that the broker has stored; `R_co` is what the task returns.

    `id` is 32 hexadecimal digits.  `key` is the idempotency key, which is the id where none was given.  `created` is
    False when a job with that key was there before: then `id` is the first one's.
    """

    id: str
    key: str
    queue: str
    task: str
    created: bool
