"""One thread's line to Redis: scripts, commands and waits, over sockets that are opened when they are needed.

Nothing is ever sent again by itself, but for what a server refused unseen: a script that it did not know, a key that
another node has.  After a ConnectionError the caller repeats the same line, and the repeat goes over a new socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from hiredis import ReplyError

from tenure.brokers.bounded import CONNECT_LIMIT, READ_LIMIT
from tenure.brokers.pool import IDLE_LIMIT
from tenure.brokers.redis.address import Address, Place
from tenure.brokers.redis.checks import check_once
from tenure.brokers.redis.node import Node
from tenure.brokers.redis.refusals import code_of, meaning
from tenure.brokers.redis.resp import Word, pack, pack_words
from tenure.brokers.redis.routes import route_to
from tenure.clock import boot
from tenure.errors import ServerError

_ASKING = pack("ASKING")
_COARSE = 0.2
"""Seconds by which Redis may be late to end a wait: it looks ten times a second."""


class Script(Protocol):
    """A Lua script; `sha` is the SHA-1 of `text` in hexadecimal digits."""

    @property
    def sha(self) -> str: ...

    @property
    def text(self) -> str: ...


class Call(NamedTuple):
    """One run of a script; all its keys are in one slot."""

    script: Script
    keys: Sequence[Word]
    args: Sequence[Word]


class Link:
    """Speaks to the server, the primary or the cluster of an address; used by one thread at a time.

    `interrupt` and `close` may be called from another one.  A refusal that no repeat can change is raised as
    ServerError with Redis's code (`OOM`: no memory is left, `ERR`: the script failed), one of access as ConfigError.
    Everything else that goes wrong is a ConnectionError, with the socket closed.
    """

    place: object = None
    """Belongs to the pool that made it."""

    def __init__(
        self,
        address: Address,
        *,
        name: str = "tenure",
        connect_limit: float = CONNECT_LIMIT,
        read_limit: float = READ_LIMIT,
        greet: Callable[[Node, float], None] = check_once,
    ) -> None:
        """Make a link that connects with its first call.

        `name` is shown by CLIENT LIST.  Limits are seconds.  `greet` looks at each server that was connected to.
        """
        self.address = address
        self.closed = False
        self.used_at = 0.0
        """When a server was last looked for to write to, in seconds of `clock.boot()`."""
        self._name = name
        self._connect_limit = connect_limit
        self._read_limit = read_limit
        self._greet = greet
        self._route = route_to(address)
        self._replicas = address.replicas
        self._nodes: dict[Place, Node] = {}
        self._interrupted = False

    def run_of(self, key: Word, limit: float) -> str:
        """Return the run id of the server that has the key, which changes with each start; connects where needed."""
        return self._ready(key, limit).server.run_id

    @property
    def run_id(self) -> str:
        """The run id of the server that was spoken to last, "" before the first call; in a cluster see `run_of`."""
        newest = max(list(self._nodes.values()), key=lambda node: node.used_at, default=None)
        return newest.server.run_id if newest else ""

    def call(self, script: Script, keys: Sequence[Word], args: Sequence[Word], limit: float) -> Any:
        """Run a script and return its reply, which has to be there, whole, within `limit` seconds."""
        node = self._ready(keys[0], limit)
        sha = script.sha
        data = self._packed(script, keys, args)
        if sha in node.scripts and not self._replicas:
            reply = node.ask(data, limit)
        else:
            (reply,) = self._run(node, [script], keys[0], data, 1, limit)
        if isinstance(reply, ReplyError):
            return self._answer(node, self._redirected(node, script, keys[0], data, reply, limit))
        return reply

    def pipeline(
        self, calls: Sequence[Call | tuple[Script, Sequence[Word], Sequence[Word]]], limit: float
    ) -> list[Any]:
        """Run scripts with one write for each server and return the replies in order, within `limit` seconds each.

        What was refused for good is a ServerError among the replies and does not stop the others.
        """
        replies: list[Any] = [None] * len(calls)
        packed = [self._packed(*call) for call in calls]
        for node, numbers in self._by_node([keys[0] for _, keys, _ in calls], limit):
            scripts = [calls[at][0] for at in numbers]
            data = b"".join([packed[at] for at in numbers])
            answers = self._run(node, scripts, calls[numbers[0]][1][0], data, len(numbers), limit)
            for at, reply in zip(numbers, answers, strict=True):
                script, keys, _ = calls[at]
                replies[at] = self._in_pipeline(node, script, keys[0], packed[at], reply, limit)
        return replies

    def command(self, *words: Word, limit: float, key: Word = "") -> Any:
        """Send one command and return its reply; in a cluster it goes to the node that has `key`."""
        node = self._ready(key, limit)
        return self._answer(node, node.ask(pack(*words), limit))

    def pop(self, key: Word, wait: float) -> bool:
        """Wait until something is in the list at `key`, at most `wait` seconds, and take it; returns whether it came.

        Raises ConnectionError where the answer is not there a little later, and when it is interrupted.
        """
        # BLPOP waits for ever when it is told 0 seconds.
        data = pack("BLPOP", key, f"{wait:.3f}") if wait >= 0.001 else pack("LPOP", key)
        limit = max(0.0, wait) + self._read_limit
        try:
            node = self._waiting_node(key, limit)
            return self._answer(node, node.ask(data, limit)) is not None
        finally:
            self._interrupted = False

    def pop_then_call(self, key: Word, wait: float, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> Any:
        """Wait as `pop` does, and then run a script, whether something came or not; returns its reply.

        Both go with one write, so the script runs as soon as the wait is over.  `key` and `keys` are on one server.
        """
        limit = max(0.0, wait) + self._read_limit
        try:
            node = self._waiting_node(key, limit)
            if self._replicas or script.sha not in node.scripts or wait < 0.001:
                self.pop(key, wait)
                return self.call(script, keys, args, self._read_limit)
            data = pack_words(("EVALSHA", script.sha, len(keys), *keys, *args))
            popped, reply = node.exchange(pack("BLPOP", key, f"{wait:.3f}") + data, 2, limit)
        finally:
            self._interrupted = False
        self._answer(node, popped)
        if isinstance(reply, ReplyError):
            reply = self._redirected(node, script, keys[0], data, reply, self._read_limit)
        return self._answer(node, reply)

    def _waiting_node(self, key: Word, limit: float) -> Node:
        node = self._ready(key, limit)
        if self._interrupted:
            node.close()
            raise ConnectionError("the wait was interrupted")
        return node

    def pop_any(self, keys: Sequence[Word], wait: float) -> Word | None:
        """Wait as `pop` does for the first of several lists, all of them on one server; returns its key."""
        if len(keys) == 1:
            return keys[0] if self.pop(keys[0], wait) else None
        limit = max(0.0, wait) + self._read_limit
        try:
            node = self._waiting_node(keys[0], limit)
            popped = self._answer(node, node.ask(pack("BLPOP", *keys, f"{max(0.001, wait):.3f}"), limit))
            return None if popped is None else popped[0]
        finally:
            self._interrupted = False

    def subscribe(self, channels: Sequence[Word], limit: float) -> Node:
        """Have what is published on channels told over a connection, and return that: it is of no other use then.

        `interrupt` and `close` end it as any other one.
        """
        node = self._ready("", limit)
        for reply in node.exchange(pack("SUBSCRIBE", *channels), len(channels), limit):
            self._answer(node, reply)
        return node

    def interrupt(self) -> None:
        """End a `pop` that waits in another thread with a ConnectionError; without one, the next call ends so."""
        self._interrupted = True
        for node in list(self._nodes.values()):
            node.interrupt()

    def close(self) -> None:
        """Close for good; what waits in another thread raises ConnectionError."""
        self.closed = True
        self.interrupt()
        for node in list(self._nodes.values()):
            node.close()

    def _ready(self, key: Word, limit: float) -> Node:
        """Return a connection to the server that has the key."""
        place = self._route.place_of(key, limit)
        node = self._nodes.get(place)
        if node is None:
            return self._open(place, limit)
        if node.closed:  # it failed, perhaps because another one has the key by now
            self._route.failed()
            return self._open(self._route.place_of(key, limit), limit)
        self.used_at = now = boot()
        if now - node.used_at >= IDLE_LIMIT:
            return self._open(place, limit)
        return node

    def _open(self, place: Place, limit: float) -> Node:
        """Connect; the old socket is closed first: a line is never on its way over two that are both open."""
        for old in [place] if self._route.many else list(self._nodes):
            if old in self._nodes:
                self._nodes.pop(old).close()
        self._stop_if_closed()
        try:
            node = self._connected(place, min(limit, self._connect_limit))
        except ConnectionError:
            self._route.failed()
            raise
        self._nodes[place] = node
        self.used_at = node.used_at
        self._stop_if_closed()  # by another thread, which found no connection to interrupt
        return node

    def _connected(self, place: Place, limit: float) -> Node:
        node = Node(place, self.address, self._name, limit)
        try:
            self._route.check(place, node.server)
            self._greet(node, self._read_limit)
        except BaseException:
            node.close()
            raise
        return node

    def _stop_if_closed(self) -> None:
        if self.closed:
            for node in list(self._nodes.values()):
                node.close()
            raise ConnectionError("this line to the broker is closed")

    def _packed(self, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> bytes:
        """Return the bytes of a call.

        In a cluster it names one key more, which never exists: a node that gives a slot away, or is given one, refuses
        what names several keys of which some are not there.  Otherwise a script would begin on a node that has a part
        of the queue's keys, and end at the first that has moved, with half of its work done.
        """
        if self._route.many:
            keys = (*keys, _beside(keys[0], b":none"))
        return pack_words(("EVALSHA", script.sha, len(keys), *keys, *args))

    def _run(
        self, node: Node, scripts: Sequence[Script], key: Word, data: bytes, count: int, limit: float
    ) -> list[Any]:
        """Send the calls in `data` with what has to be around them: unknown scripts, and a wait for the replicas."""
        unknown = {script.sha: script.text for script in scripts if script.sha not in node.scripts}
        before = [pack("SCRIPT", "LOAD", text) for text in unknown.values()]
        after = []
        if self._replicas:
            if not node.has_written:  # a connection waits for its own writes only, and a repeat may have none
                before.append(pack("SET", _beside(key, b":touched"), "", "PX", 60_000))
            after.append(pack("WAIT", self._replicas, int(1000 * max(limit / 2, limit - _COARSE))))
        replies = node.exchange(b"".join([*before, data, *after]), len(before) + count + len(after), limit)
        for reply in replies[: len(before)]:
            self._answer(node, reply)
        node.scripts.update(unknown)
        if self._replicas:
            node.has_written = True
            self._check_copies(node, replies.pop())
        return replies[len(before) :]

    def _check_copies(self, node: Node, copies: Any) -> None:
        """Believe nothing that too few replicas have: the next failover could lose it."""
        if isinstance(copies, ReplyError) or copies < self._replicas:
            node.close()
            raise ConnectionError(
                f"{copies} replicas of the server at {node.address} have it in time, not {self._replicas} "
                "as the broker URL wants"
            )

    def _redirected(self, node: Node, script: Script, key: Word, data: bytes, reply: ReplyError, limit: float) -> Any:
        """Send once more what was refused unseen, with its script or to another node; returns the last reply."""
        text = str(reply)
        code = code_of(text)
        if code == "NOSCRIPT":
            node.scripts.discard(script.sha)
            return self._run(node, [script], key, data, 1, limit)[0]
        place = self._route.moved(text) if code in ("MOVED", "ASK") else None
        if place is None:
            return reply
        other = self._nodes.get(place)
        if other is None or other.closed:
            other = self._open(place, limit)
        if code == "MOVED":
            return self._run(other, [script], key, data, 1, limit)[0]
        loaded = pack("SCRIPT", "LOAD", script.text)
        return other.exchange(loaded + _ASKING + data, 3, limit)[-1]

    def _by_node(self, keys: Sequence[Word], limit: float) -> Iterator[tuple[Node, list[int]]]:
        """Yield each server's connection with the places of its keys among `keys`."""
        found: dict[Place, list[int]] = {}
        for at, key in enumerate(keys):
            found.setdefault(self._route.place_of(key, limit), []).append(at)
        for numbers in found.values():
            yield self._ready(keys[numbers[0]], limit), numbers

    def _in_pipeline(self, node: Node, script: Script, key: Word, data: bytes, reply: Any, limit: float) -> Any:
        if not isinstance(reply, ReplyError):
            return reply
        try:
            return self._answer(node, self._redirected(node, script, key, data, reply, limit))
        except ServerError as error:
            return error

    def _answer(self, node: Node, reply: Any) -> Any:
        """Return the reply; raises what an error means, with the socket closed unless it can be used further."""
        if not isinstance(reply, ReplyError):
            return reply
        error = meaning(reply, node.address)
        if not isinstance(error, ServerError):
            node.close()
        raise error


def _beside(key: Word, name: bytes) -> bytes:
    """Return another key of the same slot."""
    return (key if isinstance(key, bytes) else str(key).encode()) + name
