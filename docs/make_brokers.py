"""Makes docs/reference/brokers.md: what each broker says of itself, and what the contract's last run has seen of it.

`make contract` runs the contract against every broker and stores what came of it in brokers.json beside the page.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.describe import filled, one_line, table
from tenure.broker import Capabilities
from tenure.brokers import SCHEMES, connect
from tenure.testing.contract import BrokerContract

RUN = Path(__file__).parent / "reference" / "brokers.json"
COLUMNS = {
    "memory": ("`memory://`", "memory://"),
    "server": ("`tenure server`", "tenure://127.0.0.1"),
    "redis": ("Redis", "redis://127.0.0.1"),
    "valkey": ("Valkey", "valkey://127.0.0.1"),
    "redis_cluster": ("Redis Cluster", "redis+cluster://127.0.0.1:7000"),
}
"""For each file tests/contract/test_NAME.py that holds a broker of ours to all of it: its title, and a URL for one."""


def last_run() -> dict[str, Any]:
    """Return what `make contract` has stored: by broker its `date`, `flags` and `parts` with the tests of each."""
    found: dict[str, Any] = json.loads(RUN.read_text(encoding="utf-8")) if RUN.exists() else {}
    return {name: found[name] for name in COLUMNS if name in found}


def flags_now() -> dict[str, dict[str, Any]]:
    """Return what each broker's capabilities are by the code; nothing is connected to."""
    found = {}
    for name, (_, url) in COLUMNS.items():
        if url.partition("://")[0] in SCHEMES:
            broker = connect(url)
            found[name] = dataclasses.asdict(broker.capabilities)
            broker.close()
    return found


INTRO = (
    "A broker holds the jobs of an app; it is found by its URL. Each keeps the same contract, or says in its "
    "capabilities what it leaves out. `tenure.testing.contract` holds every broker to both, also one of yours: "
    "[how to write a broker](../howto/write-a-broker.md)."
)
SEEN = (
    "Each row is a part of the suite; a number is how many of its tests hold. What a broker leaves out is named with "
    "its capability: those tests hold it to a clear refusal instead. They run against real servers, which are killed "
    "and whose connections are broken (`make contract`). Redis behind TLS, and Redis with a Sentinel, are held to the "
    "parts that depend on the way to the server (adding, taking, results, network, restarts)."
)


def brokers_page(made: str) -> str:
    """Return the page; `made` is the line that says how it is made."""
    run, flags = last_run(), flags_now()
    titles = [COLUMNS[name][0] for name in flags]
    parts = [
        "# What each broker guarantees",
        made,
        filled(INTRO),
        "## What the contract's last run has seen",
        filled(SEEN),
        table(("promise", *titles), list(_part_rows(run, list(flags)))),
        "## What each says of itself",
        filled("The fields of `tenure.broker.Capabilities`. Sizes are in bytes, times in seconds."),
        table(("capability", *titles, ""), list(_flag_rows(flags))),
    ]
    return "\n\n".join(parts) + "\n"


def _part_rows(run: dict[str, Any], names: list[str]) -> Iterator[tuple[str, ...]]:
    for part in BrokerContract.__bases__:
        cells = [_outcome(run[name]["parts"].get(part.__name__)) if name in run else "" for name in names]
        yield f"**{part.__name__}**: {one_line(part.__doc__)}", *cells
    yield "run on", *[run[name]["date"] if name in run else "not yet" for name in names]


def _outcome(counts: dict[str, Any] | None) -> str:
    """What came of a part: how many tests hold, how many fail, and how many have found which capability denied."""
    if counts is None:
        return ""
    words = [f"{counts['held']} hold"] if counts["held"] else []
    words += [f"**{counts['broken']} fail**"] if counts["broken"] else []
    words += [f"{number} left out: `{flag}`" for flag, number in sorted(counts["denied"].items())]
    return ", ".join(words)


def _flag_rows(flags: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for flag, words in flag_words().items():
        yield f"`{flag}`", *[_shown(values[flag]) for values in flags.values()], words


def _shown(value: object) -> str:
    if value is None:
        return "no limit"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:,.10g}"


def flag_words() -> dict[str, str]:
    """Return what each capability means: the text below it in the code."""
    (kind,) = ast.parse(inspect.getsource(Capabilities)).body
    assert isinstance(kind, ast.ClassDef)  # it is the source of a class
    words = {}
    for field, text in zip(kind.body, kind.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr), f"{field.target.id} has no words below it"
            words[field.target.id] = one_line(ast.literal_eval(text.value))
    return words
