"""Which processes end quietly at a signal while they are imported: those of our own commands, and no others."""

from __future__ import annotations

import signal

import pytest

from tenure.cli.early import command_of


@pytest.mark.parametrize(
    ("orig_argv", "dropped", "command"),
    [
        (["python", "/venv/bin/tenure", "worker", "-A", "shop"], 1, "worker"),
        (["python", "-X", "dev", "-m", "tenure", "server"], 4, "server"),
        (["python", "-m", "tenure.cli.tether", "7", "dev", "-A", "shop"], 2, "dev"),
        (["python", "/venv/bin/tenure"], 1, None),
        (["python", "-m", "shop", "worker"], 2, None),
        (["python", "-m", "tenure.worker.child", "worker"], 2, None),
        (["python", "-c", "import tenure", "worker"], 2, None),
        (["python", "/venv/bin/gunicorn", "worker"], 1, None),
        (["python"], 0, None),
    ],
)
def test_the_command_of_a_process(orig_argv: list[str], dropped: int, command: str | None) -> None:
    argv = ["-m", *orig_argv[dropped + 1 :]]  # as it stands there while the module is looked for
    assert command_of(argv, orig_argv) == command


def test_a_program_without_arguments_is_no_command() -> None:
    assert command_of([], ["python"]) is None
    assert command_of([""], ["python"]) is None


def test_a_program_that_uses_tenure_keeps_its_own_way_to_end() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
