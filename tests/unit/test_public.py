"""What `import tenure` gives, and how little it loads."""

from __future__ import annotations

import subprocess
import sys

import tenure
from tenure import errors

HEAVY = [
    "asyncio",
    "click",
    "rich",
    "uvloop",
    "tomllib",
    "socket",
    "ssl",
    "sqlite3",
    "apsw",
    "logging",
    "multiprocessing",
]


def test_all_that_is_public_is_there() -> None:
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None


def test_every_error_is_public() -> None:
    raised = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, BaseException)
    }
    assert raised <= set(tenure.__all__)
    assert all(name in (errors.__doc__ or "") for name in raised)


def test_importing_it_is_light() -> None:
    code = f"import sys, tenure; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout == "[]\n"
