"""Tasks that fail in every way there is, and tell what their `on_dead` hooks were called with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from tenure import App, Backoff, Dead, DeadJob, Discard, Failure, Retry, Snooze, current_job
from tests.stage.marks import folder, marked

HOOKS = "hooks"

app = App("failing")
QUICK = Backoff(base=0.05, cap=0.05)
_two = threading.Barrier(2)


class OwnBase(BaseException):
    pass


class OddConstructor(Exception):
    def __init__(self, one: int, *, two: int) -> None:
        super().__init__()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Refused(Exception):
    """A service's answer that names its own pause."""

    retry_after = 0.5


def _tell(who: str, job: DeadJob, error: Failure) -> None:
    line = json.dumps([who, job.id, job.attempt, job.reason, list(job.args), error.kind, error.text])
    file = os.open(folder() / HOOKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def told() -> list[list[Any]]:
    """Return what the hooks have told: who, job, attempt, reason, args, kind, text."""
    path = folder() / HOOKS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_the_task(job: DeadJob, error: Failure) -> None:
    _tell("task", job, error)
    raise RuntimeError("a hook that fails")


@app.on_dead
def of_the_app(job: DeadJob, error: Failure) -> None:
    _tell("app", job, error)


@app.task(max_attempts=4, backoff=QUICK, on_dead=of_the_task)
def always(order: int) -> None:
    """Fail, always."""
    with marked():
        raise ValueError(f"attempt {current_job.attempt} of order {order}")


def _group() -> BaseException:
    inner = ExceptionGroup("inner", [KeyError("deep"), OSError(5, "bad disk")])
    return BaseExceptionGroup("outer", [inner, SystemExit(3)])


def _noted() -> Exception:
    error = RuntimeError("with notes 😀 \0 \udc80 \x1b[31m")
    error.add_note("note \ud800")
    error.__cause__ = Unprintable()
    return error


def _endless() -> Exception:
    error = RuntimeError("x" * 1_000_000)
    error.__cause__ = KeyError(error)
    error.__cause__.__cause__ = error
    return error


SHAPES: dict[str, Callable[[], BaseException]] = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "OwnBase": OwnBase,
    "OddConstructor": lambda: OddConstructor(1, two=2),
    "Unprintable": Unprintable,
    "unpicklable": lambda: ValueError(threading.Lock(), socket.socket()),
    "group": _group,
    "noted": _noted,
    "bytes": lambda: UnicodeDecodeError("utf-8", b"ok\xff\xfe", 2, 3, "invalid start byte"),
    "endless": _endless,
}


@app.task(max_attempts=2, backoff=QUICK)
def shape(name: str) -> None:
    """Raise an exception of some shape."""
    with marked():
        error = SHAPES[name]()
        raise error


@app.task(max_attempts=2, backoff=QUICK)
async def async_shape(name: str) -> None:
    """Raise an exception of some shape in a coroutine."""
    with marked():
        error = SHAPES[name]()
        raise error


@app.task
def quick(number: int) -> int:
    """Give the number back."""
    with marked():
        return number


@app.task
def meet() -> None:
    """Wait for another one to run at the same time."""
    with marked():
        _two.wait(10.0)


@app.task(max_losses=1)
def kills() -> None:
    """End the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60.0)  # the signal may take a moment


@app.task(max_attempts=3, backoff=Backoff(base=30))
def asks(what: str) -> str:
    """Ask for something at the first two hand-outs, then return, or whatever the name says."""
    with marked():
        first = current_job.fence <= 2
        match what:
            case "retry" if first:
                raise Retry(delay=0.1, reason="the gateway is busy")
            case "retry for ever":
                raise Retry(delay=0.05, reason="still busy")
            case "snooze" if first:
                raise Snooze(0.2, "the shop is closed")
            case "dead":
                raise Dead("no such customer")
            case "discard":
                raise Discard("sold out")
            case "unclear":
                raise Retry(delay=-1)
            case "retry_after" if first:
                raise Refused
    return what


@app.task(backoff=QUICK, retry_on=(ConnectionError, KeyError), give_up_on=ConnectionRefusedError)
def picky(name: str) -> str:
    """Fail once with a built-in exception."""
    with marked():
        if current_job.attempt == 1:
            raise {"reset": ConnectionResetError, "refused": ConnectionRefusedError, "type": TypeError}[name]("x")
    return name
