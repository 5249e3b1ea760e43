"""`tenure chaos`."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import repeat

import click

from tenure.cli.options import seconds
from tenure.cli.signals import no_more_ends, on_end
from tenure.errors import ConfigError
from tenure.faults import Fault, Proxy, Schedule, Turn, parse_fault, perform, run_schedule
from tenure.faults.proxy import parse_target
from tenure.faults.verbs import VERBS, verb_of

OWN_WORDS = ("help", "status")
"""What may be typed besides the verbs."""
LISTED = "\n".join(f"  {verb.usage}\n      {verb.meaning}" for verb in VERBS.values())
HELP = f"""Stand between clients and a server, and break their connections on purpose.

Start it beside your server, and let producers and workers connect to it instead: everything passes through until you
say otherwise.  Type a verb and Enter while it runs; `help` lists them, `status` tells how many connections are open.
Ctrl+C or SIGTERM ends it.

\b
Verbs, for --do, --every and while it runs:
{LISTED}

\b
For example:
  tenure chaos                              break connections by hand
  tenure chaos --every 10s cut              reset all connections every ten seconds
  tenure chaos --do "delay 0.05"            a slow network
  tenure chaos --random --seconds 1m        a minute of everything, at random
"""


def readable(text: str) -> Fault:
    """Return the fault that a text says; raises ValueError where a proxy could not carry it out."""
    fault = parse_fault(text)
    verb_of(fault)
    return fault


def a_fault(value: str) -> Fault:
    """Read a verb with its words, such as "stall 5"."""
    try:
        return readable(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(help=HELP)
@click.option(
    "--listen", default="127.0.0.1:7335", show_default=True, metavar="HOST:PORT",
    help="Where clients connect, on this machine (port 0: any free one).",
)  # fmt: skip
@click.option(
    "--to", default="127.0.0.1:7333", show_default=True, metavar="ADDRESS",
    help="The server: HOST:PORT, unix:PATH or a broker's URL.",
)  # fmt: skip
@click.option("--do", "at_once", multiple=True, type=a_fault, metavar="VERB", help="Do this at the start.")
@click.option("--every", multiple=True, type=(seconds, a_fault), metavar="TIME VERB", help="Do this again and again.")
@click.option("--random", "at_random", is_flag=True, help="Do one of all verbs every 50 to 300 ms.")
@click.option("--seed", type=int, metavar="N", help="The same order of --random again; it is printed at the start.")
@click.option(
    "--seconds", "length", type=seconds, metavar="TIME", help="How long --random lasts.  [default: until the end]"
)
def chaos(
    listen: str,
    to: str,
    at_once: tuple[Fault, ...],
    every: tuple[tuple[float, Fault], ...],
    at_random: bool,
    seed: int | None,
    length: float | None,
) -> None:
    at_random = at_random or seed is not None
    if length is not None and not at_random:
        raise click.BadParameter("it says how long random faults last; give --random too", param_hint="--seconds")
    if length == 0:
        raise click.BadParameter(
            "0 s are over before the first fault; give a time above 0, or leave it out for no end",
            param_hint="--seconds",
        )
    if any(not pause for pause, _ in every):
        raise click.BadParameter("the time between two faults has to be above 0", param_hint="--every")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    with _proxy(listen, to) as proxy:
        run = Chaos(proxy, _stopped_by_signals())
        click.echo(f"tenure chaos on {proxy.url}, to {to}" + (f", seed {seed}" if at_random else ""))
        for fault in at_once:
            run.strike(fault)
        for pause, fault in every:
            run.follow(repeat(Turn(pause, fault)))
        if at_random:
            run.follow(Schedule(seed, length))
        run.until_told()
    no_more_ends()


class Chaos:
    """A proxy that several sources tell what to do, until `stop`: options, a schedule, and whoever types."""

    def __init__(self, proxy: Proxy, stop: threading.Event) -> None:
        self._proxy = proxy
        self._stop = stop
        self._begin = time.monotonic()
        self._followed: list[threading.Thread] = []

    def strike(self, fault: Fault) -> None:
        """Let one fault happen, and say so."""
        perform(self._proxy, fault)
        self._say(fault)

    def follow(self, turns: Iterable[Turn]) -> threading.Thread:
        """Carry out turn by turn in a thread of its own, which is returned."""
        thread = threading.Thread(target=self._follow, args=(turns,), daemon=True)
        self._followed.append(thread)
        thread.start()
        return thread

    def until_told(self) -> None:
        """Do what is typed until the end."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._stop.wait()
        for thread in self._followed:
            thread.join()
        click.echo("tenure chaos has ended; its connections are reset")

    def obey(self, line: str) -> None:
        """Do what a typed line says; one that says nothing is answered with why."""
        match line.strip():
            case "":
                pass
            case "help":
                click.echo(LISTED)
            case "status":
                click.echo(f"connections: {self._proxy.connections}, answers swallowed: {self._proxy.swallowed}")
            case text if text.split()[0] not in VERBS:
                known = ", ".join([*VERBS, *OWN_WORDS])
                click.echo(f"{text.split()[0]!r} is no verb; there are {known}", err=True)
            case text:
                try:
                    self.strike(readable(text))
                except ValueError as error:
                    click.echo(f"{error}", err=True)

    def _follow(self, turns: Iterable[Turn]) -> None:
        run_schedule(turns, self._proxy, wait=self._stop.wait, told=lambda turn: self._say(turn.fault))
        if not self._stop.is_set():
            self._say(Fault("pass"))

    def _listen(self) -> None:
        # Without a buffer, and so without its lock: a thread that waits with that lock breaks the end of the process.
        # RuntimeError: the proxy has been closed while a line was being read.
        with suppress(OSError, RuntimeError), open(0, "rb", buffering=0, closefd=False) as typed:
            for line in typed:
                self.obey(line.decode(errors="replace"))

    def _say(self, fault: Fault) -> None:
        try:
            click.echo(f"{time.monotonic() - self._begin:9.3f}  {fault}")
        except BrokenPipeError:  # nobody reads it any more, as behind `| head`
            self._stop.set()


def _stopped_by_signals() -> threading.Event:
    """Return what Ctrl+C and SIGTERM set."""
    stop = threading.Event()
    on_end(stop.set)
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # in the background a terminal has nothing to read: no need to stop
    return stop


def _proxy(listen: str, to: str) -> Proxy:
    from tenure.server.address import parse_listen

    address = parse_listen(listen)
    if address.path:
        raise click.BadParameter("write it as HOST:PORT; only --to may be a unix socket", param_hint="--listen")
    try:
        target = parse_target(to)
        _refuse_unknown_name(target)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None
    try:
        return Proxy(target, (address.host, address.port))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"cannot listen on {listen}: {reason}. Choose another address with --listen") from None


def _refuse_unknown_name(target: tuple[str, int] | str) -> None:
    """Raise ValueError where nobody knows the name of the host, so that no connection could ever be made."""
    if isinstance(target, str):
        return
    try:
        socket.getaddrinfo(*target, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"{target[0]!r} is the name of no machine ({error.strerror}); check its spelling") from None
