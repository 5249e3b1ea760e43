"""An app with hooks; `$HOOKS_FAIL` says which of them fails."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tenure import App
from tests.stage.marks import folder

app = App("hooked")
resource: list[str] = []


def write(line: str) -> None:
    with (folder() / "hooks").open("a") as file:
        file.write(f"{os.getpid()} {line} {time.monotonic():.3f}\n")


def fails(name: str) -> bool:
    """Whether this hook is to fail, which it does from the second process on where `name:later` was asked for."""
    asked = os.environ.get("HOOKS_FAIL", "")
    if asked == f"{name}:later":
        return Path(folder() / "ready").exists()
    return asked == name


@app.on_worker_start
def opens() -> None:
    """Make what the jobs use."""
    if fails("start"):
        write("failed")
        raise ValueError("no database here")
    resource.append("open")
    write("start")


@app.on_worker_start
async def opens_too() -> None:
    """Be awaited in the loop of the process."""
    await asyncio.sleep(0)
    write("astart")


@app.on_worker_stop
async def closes_too() -> None:
    """Be registered first, so called last."""
    write("astop")


@app.on_worker_stop
def closes() -> None:
    """Fail or not; the other one is called all the same."""
    write("stop")
    if fails("stop"):
        raise ValueError("cannot close")


@app.task
def uses() -> None:
    """Find what the first hook made."""
    write(f"job {resource}")


@app.task
def dies() -> None:
    """End the process at once."""
    os._exit(9)
