"""Jobs whose bodies are bytes of any kind."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tenure.ids import new_id
from tests.stage.apps import jobs


def add_by_hand(url: str, bodies: Sequence[bytes]) -> list[str]:
    """Add jobs of `work` with these bodies, by lines written by hand; returns their ids."""
    ids = [new_id() for _ in bodies]
    host, port = url.removeprefix("tenure://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as line, line.makefile("rb") as answers:
        line.sendall(b"hello 1 %b producer by-hand\n" % (b"0" * 32))
        assert answers.readline().startswith(b"ok tenure/1 ")
        for id, body in zip(ids, bodies, strict=True):
            head = f"add {id} default {jobs.work.name} {'0' * 32} {len(body)}\n"
            line.sendall(head.encode() + body + b"\n")
            assert answers.readline() == f"ok {id} created\n".encode()
    return ids
