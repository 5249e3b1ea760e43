"""The supervisor of a worker: starts worker processes, keeps their leases, counts for them, and ends them.

It never runs user code, so it stays alive whatever that code does.  One thread waits for signals, reports and ends of
processes; the keeper is the other one.
"""

from __future__ import annotations

import logging
import random
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tenure.broker import Broker
from tenure.brokers import connect
from tenure.clock import SystemClock
from tenure.names import without_secrets
from tenure.worker import logs, overruns, succession
from tenure.worker.accounts import Accounts
from tenure.worker.commands import ONE_SIGNAL
from tenure.worker.counts import Counts
from tenure.worker.handle import Handle
from tenure.worker.health import LOOK_PERIOD, Health
from tenure.worker.heartbeat import check_broker
from tenure.worker.keeper import EMPTY_BYE_TIME, LeaseKeeper
from tenure.worker.options import WorkerOptions, default_name, start_line
from tenure.worker.restarts import Restarts
from tenure.worker.vitals import look_at

logger = logging.getLogger("tenure.worker")

BYE_TIME = 5.0
"""Seconds beyond the grace time for the last answers, and again for the last byes; then the leases have to run out."""

START_TIME = 3.0
"""Seconds for the rest of their start where no process has begun to take jobs: nothing is lost when they are ended."""

_MAX_FALSE_STARTS = 5
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def run_supervisor(options: WorkerOptions) -> int:
    """Run `tenure worker` until it is told to leave; returns the exit code: 0 after a drain, 1 if it cannot start."""
    logs.configure(options.log_level, options.log_format)
    return Supervisor(options).run()


class Supervisor:
    """The processes of one worker, from the first start to the last bye; raises ConfigError."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._health = None if options.health is None else Health(options.health, options.processes, self._clock)
        self._name = options.name or default_name()
        self._children: list[Handle] = []
        self._broker: Broker | None = None
        self._broker_url = options.broker
        self._keeper: LeaseKeeper | None = None
        self._keeper_thread: threading.Thread | None = None
        self._accounts = Accounts()
        self._restarts = Restarts()
        self._replacing = False
        self._draining = False
        self._patient = True
        self._told_at = 0.0
        self._kill_at = float("inf")
        self._give_up_at = float("inf")
        self._empty_since = 0.0
        self._exit_code = 0
        self._false_starts = 0
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()

    def run(self) -> int:
        """Work until drained."""
        if self._health is not None:
            logger.info("health on %s/live and %s/ready", self._health.url, self._health.url)
        with self._signals():
            self._start_child()
            while not self._finished():
                for key, _ in self._selector.select(self._until_next_look()):
                    self._on_event(key.data)
                self._on_time()
            self._end()  # what is asked again now changes nothing
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        return self._exit_code

    def counts(self) -> Counts:
        """Return the whole tree's counts: of those that are gone, and of those that live."""
        return self._accounts.counts(self._children)

    # Events.

    def _on_event(self, child: Handle | None) -> None:
        if child is None:
            for number in self._wake_in.recv(4096):
                self._on_signal(number)
        elif child in self._children:
            self._hear(child)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._on_leave()
        elif number == signal.SIGUSR1:
            self._publish()

    def _on_leave(self) -> None:
        """The first time drain; the second time end it at once."""
        now = self._clock.boot()
        if self._draining:
            if now - self._told_at <= ONE_SIGNAL:
                return
            self._patient = False
            self._kill_at = now
            self._give_up_at = min(self._give_up_at, now + BYE_TIME)
            return
        self._draining = True
        for child in self._children:
            child.tell_to_drain()
        grace = self._options.grace
        if not any(child.has_begun() for child in self._children):
            grace = min(grace, START_TIME)
        logger.info("leaving: taking nothing new, finishing what runs for at most %g s", grace)
        self._told_at = now
        self._kill_at = now + grace
        self._give_up_at = self._kill_at + BYE_TIME

    def _on_time(self) -> None:
        now = self._clock.boot()
        if now >= self._kill_at:
            self._stop_children(now)
        self._end_overruns(now)
        for _ in range(self._missing()):
            if self._restarts.due(now):
                self._start_child()
        self._replacing = succession.make_room(self._children)
        self._accounts.pass_on(self._children)
        if self._health is not None:
            self._check(self._health)

    def _end_overruns(self, now: float) -> None:
        """Replace or end the processes in which a job goes on after its time limit."""
        for child in self._children:
            verdict = overruns.judge(child.table.entries(), now, overruns.patience(self._options))
            if verdict == "end":
                child.killed_by_us = child.overran = True
                child.kill()
            elif verdict == "replace" and not child.worn:
                child.worn = True
                logger.warning("process %d is replaced: a job goes on after it was to end", child.pid)

    def _check(self, health: Health) -> None:
        """Look how each process is, for whoever asks."""
        slots = self._options.threads, self._options.async_slots
        processes = [
            look_at(
                child.pid, child.table, slots, child.since, ready=child.ready, frozen=child.stopped, worn=child.worn
            )
            for child in self._children
        ]
        keeping = self._keeper_thread is None or self._keeper_thread.is_alive()
        health.see(tuple(processes), keeping=keeping, leaving=self._draining)

    def _missing(self) -> int:
        """Return how many processes are to be started as soon as they may."""
        if self._keeper is None or self._draining:
            return 0
        return max(0, self._options.processes - succession.in_office(self._children))

    def _stop_children(self, now: float) -> None:
        """End the code that runs; a process that only waits for answers gets a last while to have them counted."""
        waiting = [child for child in self._children if self._patient and child.table.only_settling()]
        for child in self._children:
            if child not in waiting:
                child.killed_by_us = True
                child.kill()
        self._patient = False
        self._kill_at = now + BYE_TIME if waiting else float("inf")
        if waiting:
            self._give_up_at = max(self._give_up_at, self._kill_at + BYE_TIME)

    def _until_next_look(self) -> float | None:
        """Return the seconds until something is to be done, or time limits are to be looked at."""
        seconds = self._timeout()
        if not self._children:
            return seconds
        look_period = overruns.look_period(self._options)
        return look_period if seconds is None else min(seconds, look_period)

    def _timeout(self) -> float | None:
        """Return the seconds until something is to be done without an event; None: nothing is."""
        times = [self._kill_at]
        if self._draining and not self._children:
            times.append(self._until())
        if self._missing():
            times.append(self._restarts.next_at)
        if self._replacing:
            times.append(self._clock.boot() + succession.LOOK_PERIOD)
        if self._health is not None:
            times.append(self._clock.boot() + LOOK_PERIOD)
        first = min(times)
        return None if first == float("inf") else max(0.0, first - self._clock.boot())

    def _finished(self) -> bool:
        if self._children:
            return False
        if not self._draining:
            return self._exit_code != 0
        return self._keeper is None or not self._keeper.pending() or self._clock.boot() >= self._until()

    def _until(self) -> float:
        """Return until when the last byes are tried; not for long where no job is to be given back by them."""
        if self._keeper is None or self._keeper.owes():
            return self._give_up_at
        return min(self._give_up_at, self._empty_since + EMPTY_BYE_TIME)

    # Worker processes.

    def _start_child(self) -> None:
        now = self._clock.boot()
        try:
            child = Handle(self._options, self._broker_url, self._name, now)
        except OSError as error:
            # No memory or no more processes just now: the others go on, and this one is tried again.
            self._on_failed(f"tenure: a worker process could not be started: {error}")
            self._restarts.ended(now, now)
            return
        self._children.append(child)
        succession.replace_one(self._children, child)
        self._selector.register(child.reports_fd, selectors.EVENT_READ, child)
        if self._keeper is not None:
            self._keeper.watch(child.watched)
        logger.debug("process %d started, session %s", child.pid, child.session)

    def _hear(self, child: Handle) -> None:
        for what in child.hear():
            if "ready" in what:
                child.ready, child.since = True, self._clock.boot()
                self._on_ready(child, what["ready"])
            elif "worn" in what:
                child.worn = True
                logger.info("process %d is replaced: %s", child.pid, what["worn"])
            elif "resting" in what:
                child.resting = True
            elif "failed" in what:
                child.failed = True
                self._on_failed(what["failed"])
            elif "left" in what:
                child.left = True
        if child.deaf:
            with suppress(KeyError):
                self._selector.unregister(child.reports_fd)

    def _on_ready(self, child: Handle, ready: dict[str, Any]) -> None:
        if self._keeper is not None:
            return
        try:
            self._broker = connect(ready["broker"])
            keeper = self._broker.keeper()
            check_broker(keeper)
        except Exception as error:  # noqa: BLE001  (told to the person who started it)
            url = without_secrets(ready["broker"])
            self._on_failed(f"tenure: a worker cannot use the broker {url}: {error}")
            child.kill()
            return
        self._broker_url = ready["broker"]
        self._keeper = LeaseKeeper(keeper, self._clock, random.random, self._wake)
        self._keeper.watch(child.watched)
        self._keeper_thread = threading.Thread(target=self._keeper.run, name="tenure-keeper", daemon=True)
        self._keeper_thread.start()
        if self._health is not None:
            self._health.ask(self._broker.keeper())
        options = self._options
        logger.info("%s", start_line(self._name, options.processes, options.threads, ready["queues"], ready["tasks"]))
        for warning in ready["warnings"]:
            logger.warning("%s", warning)

    def _on_failed(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        if self._keeper is None:
            self._exit_code = 1

    def _reap(self) -> None:
        for child in tuple(self._children):
            how = child.poll()
            if how is not None:
                self._hear(child)
                self._bury(child, how)

    def _bury(self, child: Handle, how: str) -> None:
        """Count what a process that is gone had counted, and give back what it held."""
        self._children.remove(child)
        succession.is_buried(self._children, child)
        with suppress(KeyError):
            self._selector.unregister(child.reports_fd)
        if self._keeper is None:
            self._never_ready(how)
        else:
            self._keeper.forget(child.watched)
            self._accounts.bury(child, how, self._clock.boot())
            self._say_last_words()
        child.close()
        self._empty_since = self._clock.boot()
        if not child.overran and not (child.worn and child.left):
            self._restarts.ended(child.started_at, self._clock.boot(), child.failed)

    def _never_ready(self, how: str) -> None:
        if self._draining or self._exit_code:
            return
        self._false_starts += 1
        if how.startswith("SIG") and self._false_starts < _MAX_FALSE_STARTS:
            self._start_child()  # killed from outside: that says nothing about the app
        else:
            print(f"the first worker process ended ({how}) before it had imported {self._options.app}", file=sys.stderr)
            self._exit_code = 1

    def _say_last_words(self) -> None:
        """Have byes said once no process is left that is being stopped: it could be given what another gives back."""
        if self._keeper is None or any(child.killed_by_us for child in self._children):
            return
        for farewell in self._accounts.last_words():
            self._keeper.farewell(farewell)

    def _wake(self) -> None:
        with suppress(OSError):
            self._wake_out.send(b"\0")

    # Beginning and end.

    def _publish(self) -> None:
        counts = self.counts()
        with suppress(OSError):
            print(counts.line(), flush=True)
        if self._options.counts_file is not None:
            try:
                counts.write(self._options.counts_file)
            except OSError as error:
                logger.error("the counts could not be written to %s: %s", self._options.counts_file, error)

    def _end(self) -> None:
        if self._health is not None:
            self._health.close()
        if self._keeper is not None and self._keeper_thread is not None:
            if self._keeper.owes():
                logger.error("the broker did not answer; jobs that were held come back when their leases run out")
            elif self._keeper.pending():
                logger.warning("the broker did not answer the last word of this worker; no job was held")
            self._keeper.stop()
            self._keeper_thread.join(2.0)
        if self._broker is not None:
            self._broker.close()
        if self._exit_code == 0:
            self._publish()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Have every signal written, as one byte, into a socket that the loop waits on."""
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        old_fd = signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_fd)
