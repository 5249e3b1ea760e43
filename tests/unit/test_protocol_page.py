"""The dialogues in the protocol's specification are what the server really says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.property.lab import WALL, Lab, Line, hexid, session_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
FENCE = re.compile(r"^```dialogue\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"([12]?)([<>=]) ?(.*)")
NAMES = {"FP": "f" * 32, "OTHER": "e" * 32, "S1": session_of(1), "S2": session_of(2)}


def dialogues() -> Iterator[tuple[str, list[str]]]:
    """(name, steps) of each dialogue on the page; the name is the heading before it and its line."""
    page = PAGE.read_text(encoding="utf-8")
    for found in FENCE.finditer(page):
        before = page[: found.start()]
        heading = before.rpartition("\n### ")[2].partition("\n")[0]
        yield f"{heading} (line {before.count(chr(10)) + 1})", found[1].splitlines()


def spell(text: str) -> str:
    """The text with the page's placeholders filled in."""
    text = re.sub(r"\bJOB(\d)\b", lambda found: hexid(int(found[1])), text)
    text = re.sub(r"\bNOW(?:\+(\d+))?\b", lambda found: str(WALL + int(found[1] or 0)), text)
    return re.sub(r"\b(FP|OTHER|S1|S2)\b", lambda found: NAMES[found[1]], text)


def fits(expected: str, line: str) -> bool:
    """Whether a line is what the page expects; `…` is anything to the end of the word, or of the line."""
    parts = [re.escape(part) for part in spell(expected).split("…")]
    last = parts.pop()
    pattern = "".join(f"{part}[^ ]*" for part in parts[:-1])
    if parts:
        pattern += parts[-1] + ("[^ ]*" if last else ".*")
    return re.fullmatch(pattern + last, line) is not None


class Play:
    """One dialogue, step by step, on a fresh server."""

    def __init__(self, path: Path, hello: bool) -> None:
        self.lab = Lab(str(path))
        self.lines: dict[str, Line] = {}
        self.waiting: dict[str, list[str]] = {"1": [], "2": []}
        self.connect("1", hello)
        self.connect("2", True)

    def connect(self, which: str, hello: bool = True) -> None:
        self.lines[which] = self.lab.connect(int(which)) if hello else Line(self.lab)
        self.waiting[which].clear()

    def hear(self) -> None:
        """Collect what has been answered."""
        self.lab.turn()
        for which, line in self.lines.items():
            self.waiting[which] += line.read().decode().splitlines()

    def step(self, which: str, kind: str, text: str) -> None:
        if kind == ">":
            self.lines[which].write(spell(text).encode() + b"\n")
            return
        self.hear()
        if kind == "<":
            assert self.waiting[which], f"nothing came, {text!r} was expected"
            assert fits(text, self.waiting[which].pop(0)), text
        elif text == "cut":
            self.lines[which].cut()
            self.connect(which)
        elif text == "restart":
            self.lab.restart()
            self.connect("1")
            self.connect("2")
        else:
            assert re.fullmatch(r"\d+s", text), text
            self.lab.pass_time(float(text[:-1]))

    def finish(self) -> None:
        self.hear()
        assert self.waiting == {"1": [], "2": []}, "there was more than the page says"
        verified = self.lab.engine.verify()
        assert verified["verified"], verified["differences"]
        self.lab.close()


@pytest.mark.parametrize("steps", [pytest.param(steps, id=name) for name, steps in dialogues()])
def test_a_dialogue_of_the_page(steps: list[str], tmp_path: Path) -> None:
    play = Play(tmp_path / "tenure.db", hello=not steps[0].startswith("> hello"))
    kind_before = ""
    for step in steps:
        found = STEP.fullmatch(step)
        assert found is not None, f"{step!r} is no step of a dialogue"
        which, kind, text = found.groups()
        if kind == ">" and kind_before == "<":
            assert play.waiting == {"1": [], "2": []}, "there was more than the page says"
        play.step(which or "1", kind, text)
        kind_before = kind
    play.finish()


def test_every_line_of_the_table_is_in_a_dialogue() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("## Lines and answers")[2].partition("\n## ")[0]
    verbs = {
        word.split(" ")[0]
        for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
        for word in re.findall(r"`([a-z].*?)`", row)
    }
    assert {"add", "take", "bye", "record", "browse"} <= verbs
    sent = {step.lstrip("2> ").split(" ")[0] for _, steps in dialogues() for step in steps if ">" in step[:2]}
    assert verbs - {"producer", "worker", "keeper", "admin"} <= sent


def test_every_error_that_can_be_shown_here_is_in_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = set(re.findall(r"`([a-z-]+)`", page.partition("## Errors")[2].partition("\n## ")[0]))
    shown = {step.split(" ")[2] for _, steps in dialogues() for step in steps if step.startswith("< err ")}
    assert shown <= table
    assert len(shown) >= 9
