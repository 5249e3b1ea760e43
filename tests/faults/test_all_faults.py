"""All faults at once, drawn from a seed: whatever comes together, every account agrees in the end.

For a longer look: `TENURE_FAULT_SEED=7 TENURE_FAULT_SECONDS=40 pytest tests/faults/test_all_faults.py`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress

from tenure.faults import Proxy, process
from tests.stage.apps import jobs
from tests.stage.harness import Stage, wait_for
from tests.stage.producer import Producer
from tests.stage.scripts import LosesAnswers

SECONDS = float(os.environ.get("TENURE_FAULT_SECONDS", "8"))
SEED = int(os.environ.get("TENURE_FAULT_SEED", "1"))


class Chaos:
    """Faults for two workers, their server and the proxy between them."""

    def __init__(self, stage: Stage, proxy: Proxy, loses: LosesAnswers, dice: random.Random) -> None:
        self._stage = stage
        self._proxy = proxy
        self._loses = loses
        self._dice = dice
        self._address = stage.url.removeprefix("tenure://")
        self._deck: list[Callable[[], object]] = []

    def strike(self) -> None:
        """Let one fault happen; all have had their turn before one comes again."""
        if not self._deck:
            self._deck = [
                self._proxy.cut,
                lambda: self._proxy.stall(0.3),
                lambda: self._proxy.cut_on_accept(3),
                self._lose_answers,
                self._kill_a_process,
                self._kill_the_server,
                self._freeze_the_server,
            ]
            self._dice.shuffle(self._deck)
        self._deck.pop()()

    def _lose_answers(self) -> None:
        self._loses.times += 1

    def _kill_a_process(self) -> None:
        if children := self._dice.choice(self._stage.workers).children:
            with suppress(ProcessLookupError):
                process.kill(self._dice.choice(children))

    def _kill_the_server(self) -> None:
        process.kill(self._stage.server.pid)
        self._stage.server.wait()
        self._stage.start_server(self._address)

    def _freeze_the_server(self) -> None:
        process.freeze(self._stage.server.pid)
        try:
            time.sleep(1.2)  # long enough for clients to take the silence for a broken connection
        finally:
            process.thaw(self._stage.server.pid)


def test_all_faults_together(stage: Stage) -> None:
    dice = random.Random(SEED)
    loses = LosesAnswers(1)
    with Proxy(stage.url, script=loses) as proxy:
        stage.use(jobs.app, proxy.url)
        for name in ("a", "b"):
            stage.start_worker(name, "--processes", "2", "--threads", "3", broker=proxy.url)
        producers = [Producer(0.01, 0.05), Producer(0.02, 0.1)]
        chaos = Chaos(stage, proxy, loses, dice)
        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                chaos.strike()
                time.sleep(dice.uniform(0.05, 0.4))
        finally:
            ids = [id for producer in producers for id in producer.stop()]
        proxy.pass_through()
        wait_for(lambda: _rested(stage), 20, "no job waits or runs")
        totals = stage.check(jobs.app.counts)["totals"]
    assert (totals["added"], totals["done"]) == (len(ids), len(set(ids)))
    assert {one.job for one in stage.executions() if one.ended} == set(ids)


def _rested(stage: Stage) -> bool:
    totals = stage.totals()
    return not any(totals[state] for state in ("scheduled", "ready", "running"))
