"""What is found in a source file, and the small database that keeps it."""

from __future__ import annotations

import ast
import sqlite3
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path

FILE = "findings.db"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one source file holds; `longest` is the name of its longest function, "" where it has none."""

    path: str
    lines: int
    functions: int
    classes: int
    longest: str
    longest_lines: int


def measured(path: Path) -> Finding:
    """Read the source file and count; a file that is no valid Python has its lines counted only."""
    source = path.read_bytes()
    lines = len(source.splitlines())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Finding(str(path), lines, 0, 0, "", 0)
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = sum(isinstance(node, ast.ClassDef) for node in nodes)
    length, name = max(((_length(function), function.name) for function in functions), default=(0, ""))
    return Finding(str(path), lines, len(functions), classes, name, length)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def prepare(folder: Path) -> None:
    """Make the empty database in `folder`."""
    with closing(sqlite3.connect(folder / FILE)) as db:
        db.executescript(_SCHEMA)


def save(folder: Path, finding: Finding, fence: int) -> None:
    """Keep a finding; one that a job's later hand-out has written is left as it is."""
    with closing(sqlite3.connect(folder / FILE, timeout=30)) as db, db:
        db.execute(_SAVE, (*astuple(finding), fence))


def load(folder: Path) -> list[Finding]:
    """Return all findings, those with the most lines first."""
    with closing(sqlite3.connect(folder / FILE)) as db:
        return [Finding(*row) for row in db.execute(_LOAD)]


_SCHEMA = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE findings (
        path TEXT PRIMARY KEY, lines INT, functions INT, classes INT, longest TEXT, longest_lines INT, fence INT
    )
"""

_SAVE = """
    INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (path) DO UPDATE SET
        lines = excluded.lines, functions = excluded.functions, classes = excluded.classes,
        longest = excluded.longest, longest_lines = excluded.longest_lines, fence = excluded.fence
    WHERE excluded.fence >= findings.fence
"""

_LOAD = "SELECT path, lines, functions, classes, longest, longest_lines FROM findings ORDER BY lines DESC, path"
