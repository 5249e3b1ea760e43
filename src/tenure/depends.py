"""Parameters that a worker fills: `db: Session = Depends(open_db)`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tenure.errors import TaskDefinitionError
from tenure.names import shown

Per = Literal["job", "process"]
"""How long what a factory made is used: for one job, or for all jobs of a worker process."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """What makes the value of a parameter, and for how long it is used; made by `Depends`."""

    factory: Callable[..., Any]
    per: Per = "job"


def Depends(factory: Callable[..., Any], *, per: Per = "job") -> Any:  # noqa: N802  (it stands where a value does)
    """Let the worker fill a parameter with what `factory` returns or, as a generator, yields.

    Written as the default, `db: Session = Depends(open_db)`, or within `Annotated`.  The parameter is no part of the
    call: it has to come after those that are.  With `per="job"` the factory is called for each execution, and with
    `per="process"` once in a worker process, when it is first needed.  A generator goes on behind its `yield` when
    the job, or the process, is over.  An async factory is for `async def` tasks.  A factory may itself have such
    parameters, and a `JobContext` as its first one.  Raises TaskDefinitionError.
    """
    given: object = factory
    if not callable(given) or not isinstance(given, Hashable):
        raise TaskDefinitionError(f"Depends takes a function that makes the value, not {shown(given)}")
    if per not in get_args(Per):
        raise TaskDefinitionError(f'Depends(per={shown(per)}) has to be "job" or "process"')
    return Dependency(factory, per)
