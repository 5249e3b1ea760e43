"""The entry of a worker process that a supervisor starts: `python -m tenure.worker.child OPTIONS`.

It reports to its supervisor in lines of JSON: `ready` (broker, queues, tasks, warnings) or `failed` (text), `worn` (why
it is to be replaced), `resting` when it takes nothing new for that, and `left` when it holds nothing any more and has
said `bye` itself.  It is told in lines: `drain` or, when it is replaced, `make-room`; `look` where one of its jobs is
to be terminated; `tell-of RECEIPT` of a job whose own process is gone.  The end of that pipe means that the supervisor
is gone.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
from typing import Any

from tenure.clock import SystemClock
from tenure.worker.commands import Commands
from tenure.worker.options import ChildOptions

logger = logging.getLogger("tenure.worker")

_PR_SET_PDEATHSIG = 1

# SIGTERM drains, however often it comes; the terminal's and the operator's signals are the supervisor's.  They are
# handled and not ignored, because the programs that tasks start would inherit that.
_SIGNALS = {signal.SIGTERM: "drain", signal.SIGINT: "", signal.SIGUSR1: ""}


def main(text: str) -> int:
    """Work until told to leave; returns the exit code."""
    options = ChildOptions.read(text, os.environ)
    die_with(options.parent)
    commands = Commands()
    with commands.from_signals(_SIGNALS):
        # The supervisor blocked them around the start, so that none could hit before this.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(_SIGNALS))
        return _work(options, commands)


def _work(options: ChildOptions, commands: Commands) -> int:
    for fd in (options.table_fd, options.commands_fd, options.reports_fd):
        os.set_inheritable(fd, False)  # what the tasks start must not hold them open
    threading.Thread(target=_listen, args=(options.commands_fd, commands), daemon=True).start()

    from tenure.worker import logs

    worker = options.worker
    logs.configure(worker.log_level, worker.log_format)
    try:
        process = ChildProcess(options)
        process.prepare()
        logs.restore(worker.log_level, worker.log_format)
    except BaseException as error:  # noqa: BLE001  (the app's modules and hooks may raise anything)
        report(options.reports_fd, failed=_why(error, worker.app))
        return 1
    process.run(commands)
    return 0


class ChildProcess:
    """One worker process: the app, its broker and the services; its leases are kept by the supervisor."""

    def __init__(self, options: ChildOptions) -> None:
        # Imported late: before this, the process must already follow its supervisor, and answer to signals.
        from tenure.errors import ConfigError
        from tenure.worker.load import load_app, look_here
        from tenure.worker.quota import Limits
        from tenure.worker.services import Services
        from tenure.worker.table import Table
        from tenure.worker.worker import queue_warnings, require_queues

        self._options = options
        worker = options.worker
        assert worker.name is not None  # the supervisor has seen to it
        self._clock = SystemClock()
        look_here()
        app = load_app(worker.app)
        queues = require_queues(app, worker.queues)
        if worker.broker is not None:
            app.use_broker(worker.broker)
        url = app.broker_url
        self._broker = app.broker
        self._limits = Limits(worker.max_jobs, worker.max_memory)
        if self._broker.capabilities.one_process:
            raise ConfigError(
                f"{url} holds jobs of its own process only, and this would be another one: run the worker in the "
                "process that adds the jobs, with app.worker().run() in a thread, or name a server with --broker"
            )
        self._services = Services(
            app,
            self._broker,
            Table.attach(options.table_fd),
            self._clock,
            queues=queues,
            session=options.session,
            name=worker.name,
            threads=worker.threads,
            async_slots=worker.async_slots,
            grace=worker.grace,
            visibility_timeout=(
                app.settings.visibility_timeout if worker.visibility_timeout is None else worker.visibility_timeout
            ),
            isolate=worker.isolate,
            limits=self._limits,
            worn=lambda why: report(options.reports_fd, worn=why),
            started_at=options.started_at,
        )
        self._warnings = queue_warnings(app, queues, worker.isolate)
        self._ready = {"broker": url, "queues": queues, "tasks": sorted(app.tasks)}

    def prepare(self) -> None:
        """Run the app's hooks for the start of a process."""
        self._services.prepare()

    def run(self, commands: Commands) -> None:
        """Work until told to drain, and say bye."""
        from tenure.worker.keeper import leave
        from tenure.worker.patience import Patience
        from tenure.worker.quota import memory_warnings, resident_bytes

        commands.act_on("look", self._services.look)
        commands.act_on("tell-of", lambda receipt: self._services.tell_of(receipt.encode()))
        warnings = [*self._warnings, *memory_warnings(self._limits, resident_bytes())]
        report(self._options.reports_fd, ready=self._ready | {"warnings": warnings})
        self._services.start()
        if commands.get() == "make-room":
            self._make_room(commands)
        else:
            self._services.drain()
        self._services.finish()
        leave(self._broker.keeper(), self._options.session, self._clock, Patience(self._clock, random.random))
        report(self._options.reports_fd, left=True)

    def _make_room(self, commands: Commands) -> None:
        """Finish what runs, however long that takes: only once the worker leaves has it the grace time."""

        def follow() -> None:
            commands.get()
            self._services.hurry()

        self._services.stop_taking()
        report(self._options.reports_fd, resting=True)
        threading.Thread(target=follow, name="tenure-drain", daemon=True).start()
        self._services.finish_jobs()


def die_with(parent: int) -> None:
    """Ask the system to kill this process when its supervisor dies, and make sure that this one is still there."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def report(fd: int, **what: Any) -> None:
    """Write one line to the supervisor."""
    data = json.dumps(what).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def _listen(fd: int, commands: Commands) -> None:
    """Wait for commands; the end of the pipe means that nobody keeps the leases any more."""
    with os.fdopen(fd, closefd=False) as lines:
        for line in lines:
            commands.put(*line.split())
    os._exit(1)


def _why(error: BaseException, app: str) -> str:
    from tenure.worker.load import traced, why_not_loaded
    from tenure.worker.process_hooks import StartHookError

    if isinstance(error, StartHookError) and error.__cause__ is not None:
        return f"tenure: {error}:\n{traced(error.__cause__)}"
    return f"tenure: {why_not_loaded(error, app)}"


if __name__ == "__main__":
    code = main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    # Not by the interpreter's own end: threads that tasks left behind could hold it up for ever.
    os._exit(code)
