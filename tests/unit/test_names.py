"""Names of tasks, and what a mistyped word was meant to be."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError, TaskDefinitionError
from tenure.names import checked, did_you_mean, place_of, task_name, unknown_option

JOBS = """
from shop.base import app

@app.task
def charge(order_id: int) -> None: ...

if __name__ == "__main__":
    import shop.mail
    print(sorted(app.tasks), shop.mail.charge is charge)
"""


def plain() -> None: ...


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text("from tenure import App\napp = App('shop')\n")
    (package / "jobs.py").write_text(JOBS)
    (package / "mail.py").write_text("from shop.jobs import charge\n")
    return tmp_path


def test_a_task_has_the_name_of_its_module_and_function() -> None:
    assert task_name(plain) == f"{__name__}.plain"


def test_a_module_that_is_run_has_the_name_that_a_worker_knows(shop: Path) -> None:
    result = run(shop, "-m", "shop.jobs")
    assert result.stdout == "['shop.jobs.charge'] True\n", result.stderr


def test_a_script_is_refused_and_told_what_to_do(shop: Path) -> None:
    (shop / "script.py").write_text(JOBS)
    result = run(shop, "script.py")
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert "TaskDefinitionError" in last
    assert "python -m" in last
    assert "name='jobs.charge'" in last


def test_a_lambda_has_no_name() -> None:
    with pytest.raises(TaskDefinitionError, match="name="):
        task_name(lambda: None)
    with pytest.raises(TaskDefinitionError, match="name="):
        task_name(functools.partial(plain))


def test_a_decorated_function_is_known_by_its_own_place() -> None:
    first, second = wrapped(plain), wrapped(did_you_mean)
    assert place_of(first) == place_of(plain)
    assert place_of(first) != place_of(second)
    assert place_of(len) is None


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("max_retry", "Did you mean 'max_attempts'?"),
        ("max_attempt", "Did you mean 'max_attempts'?"),
        ("max_retries", "max_attempts="),
        ("countdown", "delay="),
        ("eta", "run_at="),
        ("acks_late", "always acknowledged after it has run"),
        ("ignore_result", "leave it out"),
        ("priorty", "Did you mean 'priority'?"),
        ("xyzzy", "Options: queue, priority, max_attempts."),
    ],
)
def test_an_unknown_option_is_answered_with_the_known_one(word: str, hint: str) -> None:
    assert hint in unknown_option("@app.task", word, ["queue", "priority", "max_attempts"])


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "x" * 513, 3, None, b"x"])
def test_a_name_keeps_the_rule(name: Any) -> None:
    with pytest.raises(ConfigError, match="queue"):
        checked("queue", name)
    assert checked("queue", "Grün / 1") == "Grün / 1"
