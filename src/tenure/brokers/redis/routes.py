"""Which server is asked: the only one, the primary that the Sentinels name, or the one that has the key's slot.

A route is one link's.  It remembers where it found something, and forgets it when that fails.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from hiredis import ReplyError

from tenure.brokers.redis.address import Address, Kind, Place
from tenure.brokers.redis.node import OLDEST, Server, login_commands
from tenure.brokers.redis.refusals import meaning
from tenure.brokers.redis.resp import RespSocket, Word, pack
from tenure.clock import boot
from tenure.errors import ConfigError

SLOTS = 16384
RECHECK = 1.0
"""Seconds after which the Sentinels are asked whether the primary is still the same."""
RECHECK_LIMIT = 0.2
"""Seconds that this may take."""


_UNKNOWN = re.compile("unknown command|cluster support disabled", re.IGNORECASE)


class Route(Protocol):
    """Names the server for a key."""

    many: bool
    """Whether several servers are in use at the same time."""

    def place_of(self, key: Word, limit: float) -> Place:
        """Return where the key's server is, found out within `limit` seconds.

        Raises ConnectionError, and ConfigError for good.
        """

    def check(self, place: Place, server: Server) -> None:
        """Raise ConfigError for a server that is none of these, ConnectionError for one that is not right now."""

    def failed(self) -> None:
        """A server did not do what it should: it may be another one by now."""

    def moved(self, text: str) -> Place | None:
        """Return where the server of that key is by an error reply MOVED or ASK; None: such a thing cannot be."""


class Only:
    """One server, at a place that is known."""

    many = False

    def __init__(self, address: Address) -> None:
        (self._place,) = address.places

    def place_of(self, key: Word, limit: float) -> Place:
        return self._place

    def check(self, place: Place, server: Server) -> None:
        check_version(place, server)
        if server.mode == "cluster":
            raise ConfigError(f"the server at {place} is a node of a cluster: write redis+cluster://{place}")
        if server.mode == "sentinel":
            raise ConfigError(f"the server at {place} is a Sentinel: write redis+sentinel://{place}/SERVICE")
        check_primary(place, server)

    def failed(self) -> None:
        pass

    def moved(self, text: str) -> Place | None:
        return None


class Primary(NamedTuple):
    """Where the Sentinels said that the primary is, and when (boot clock)."""

    place: Place
    asked_at: float


_primaries: dict[Address, Primary] = {}
"""What the links of this process know together, so that a Sentinel is asked once for all of them."""


class Sentinels:
    """The primary of a service.  The Sentinels are asked again every `RECHECK` seconds while it is used: a primary
    that was replaced goes on for a while, and what it is told then is lost.
    """

    many = False

    def __init__(self, address: Address) -> None:
        self._address = address
        self._places = list(address.places)

    def place_of(self, key: Word, limit: float) -> Place:
        known = _primaries.get(self._address)
        if known is None:
            return self._look(limit)
        now = boot()
        if now - known.asked_at < RECHECK:
            return known.place
        _primaries[self._address] = Primary(known.place, now)  # one link asks, the others go on
        with suppress(ConnectionError):  # without Sentinels there is no other primary either
            return self._look(RECHECK_LIMIT)
        return known.place

    def _look(self, limit: float) -> Place:
        """Ask one Sentinel after the other; a silent one costs its share of the time only."""
        try:
            found: Place | None = first_answer(self._places, limit, self._ask)
        except ConnectionError as error:
            places = ", ".join(map(str, self._places))
            raise ConnectionError(f"no Sentinel answered at {places}: {error}") from error
        if found is None:
            raise ConfigError(
                f"no Sentinel at {', '.join(map(str, self._places))} watches a service {self._address.service!r}; "
                "see `sentinel monitor` in their configuration"
            )
        _primaries[self._address] = Primary(found, boot())
        return found

    def _ask(self, place: Place, limit: float) -> Place | None:
        login = self._address.sentinel_login
        question = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
        commands = [*login_commands(login.username, login.password), question]
        none = f"the server at {place} is no Sentinel: name the Sentinels, or write redis://{place}"
        answer = ask_once(place, self._address, commands, limit, none)
        if answer is None:
            return None
        self._places.remove(place)
        self._places.insert(0, place)  # it is asked first the next time
        host, port = answer
        return Place(host.decode(), int(port))

    def check(self, place: Place, server: Server) -> None:
        check_version(place, server)
        check_primary(place, server)

    def failed(self) -> None:
        _primaries.pop(self._address, None)

    def moved(self, text: str) -> Place | None:
        return None


class Slots:
    """The nodes of a cluster; who has which slot is asked anew whenever one of them fails."""

    many = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._owners: list[Place | None] = []
        self._known: list[Place] = list(address.places)

    def place_of(self, key: Word, limit: float) -> Place:
        if not self._owners:
            self._learn(limit)
        owner = self._owners[slot_of(key)]
        if owner is None:
            self.failed()
            raise ConnectionError(f"no node of the cluster at {self._address} has slot {slot_of(key)} now")
        return owner

    def check(self, place: Place, server: Server) -> None:
        check_version(place, server)
        if server.mode != "cluster":
            raise ConfigError(f"the server at {place} is in no cluster: write redis://{place}")
        check_primary(place, server)

    def failed(self) -> None:
        self._owners = []

    def moved(self, text: str) -> Place | None:
        """Read `MOVED SLOT HOST:PORT`, or the same with ASK, which says nothing about the next call."""
        word, slot, where = text.split(" ")[:3]
        host, _, port = where.rpartition(":")
        place = Place(host or self._known[0].host, int(port))
        if word == "MOVED" and self._owners:
            self._owners[int(slot)] = place
        return place

    def _learn(self, limit: float) -> None:
        seen = dict.fromkeys((*self._known, *self._address.places))
        owners = first_answer(seen, limit, self._ask)
        self._owners = owners or [None] * SLOTS
        self._known = [place for place in dict.fromkeys(self._owners) if place is not None] or self._known

    def _ask(self, place: Place, limit: float) -> list[Place | None] | None:
        login = self._address.login
        question = pack("CLUSTER", "SLOTS")
        commands = [*login_commands(login.username, login.password), question]
        none = f"the server at {place} is in no cluster: write redis://{place}"
        ranges = ask_once(place, self._address, commands, limit, none)
        owners: list[Place | None] = [None] * SLOTS
        for begin, end, primary, *_ in ranges:
            # A node that knows no name of its own means the one by which it was reached.
            owner = Place((primary[0] or b"").decode() or place.host, primary[1])
            owners[begin : end + 1] = [owner] * (end + 1 - begin)
        return owners if ranges else None


def route_to(address: Address) -> Route:
    """Return the route for what a URL says."""
    kinds: dict[Kind, Callable[[Address], Route]] = {"single": Only, "sentinel": Sentinels, "cluster": Slots}
    return kinds[address.kind](address)


def slot_of(key: Word) -> int:
    """Return the cluster's slot of a key: that of what stands in its first braces, where something does."""
    name = key if isinstance(key, bytes) else str(key).encode()
    begin = name.find(b"{")
    if begin >= 0:
        end = name.find(b"}", begin + 1)
        if end > begin + 1:
            name = name[begin + 1 : end]
    return crc_hqx(name, 0) % SLOTS


def check_version(place: Place, server: Server) -> None:
    numbers = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"the server at {place} is Redis {server.version}; Tenure needs {oldest} or newer, or Valkey")


def check_primary(place: Place, server: Server) -> None:
    if server.role != "master":
        raise ConnectionError(f"the server at {place} is a replica now, which takes no writes")


def first_answer(places: Iterable[Place], limit: float, ask: Callable[[Place, float], Any]) -> Any:
    """Return the first answer that is not None; each place that is left has its share of the time.

    None: some answered, with None.  Raises the last ConnectionError where nobody did.
    """
    end = boot() + limit
    waiting = list(places)
    error: ConnectionError | None = None
    answered = False
    while waiting:
        share = max(0.05, (end - boot()) / len(waiting))
        try:
            answer = ask(waiting.pop(0), share)
        except ConnectionError as failure:
            error = failure
            continue
        if answer is not None:
            return answer
        answered = True
    if error is not None and not answered:
        raise error
    return None


def ask_once(place: Place, address: Address, commands: list[bytes], limit: float, none: str) -> Any:
    """Return the reply to the last command, over a connection of its own; raises as `meaning` says.

    `none` is what to say where the server is of a kind that does not know the command.
    """
    started = boot()
    socket = RespSocket(place, address.tls, limit)
    try:
        replies = socket.exchange(b"".join(commands), len(commands), max(0.001, limit - (boot() - started)))
    finally:
        socket.close()
    for reply in replies:
        if isinstance(reply, ReplyError):
            if reply is replies[-1] and _UNKNOWN.search(str(reply)):
                raise ConfigError(none)
            error = meaning(reply, place)
            raise error if isinstance(error, ConnectionError | ConfigError) else ConfigError(f"{place}: {error}")
    return replies[-1]
