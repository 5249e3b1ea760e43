"""`tenure chaos`: what it refuses, and what it does at the word of whoever types."""

from __future__ import annotations

import socket
import threading

import pytest
from click.testing import CliRunner

from tenure.cli.chaos import Chaos
from tenure.cli.main import main
from tenure.faults import Proxy, parse_fault
from tenure.faults.schedule import Turn
from tenure.faults.verbs import VERBS


@pytest.fixture
def chaos(proxy: Proxy) -> Chaos:
    return Chaos(proxy, threading.Event())


def test_a_typed_verb_is_done_and_said(chaos: Chaos, proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(proxy.address, 10):
        chaos.obey("stall 3600\n")
        chaos.obey("status\n")
        chaos.obey("  cut \n")
    said = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in said] == ["stall 3600", "1, answers swallowed: 0", "cut"]
    assert proxy.connections == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("shake 5", f"'shake' is no verb; there are {', '.join(VERBS)}, help, status\n"),
        ("throttle 0", "'throttle 0' is not possible: RATE has to be a whole number of 1 or more (`pass` ends it)"),
        ("stall soon", "'soon' in 'stall soon' is no number"),
        ("cut-after 5", "'cut-after 5' does not fit; write it as: cut-after N request|answer"),
    ],
)
def test_a_typed_line_that_says_nothing_is_answered_with_why(
    chaos: Chaos, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    chaos.obey(line)
    assert capsys.readouterr().err.startswith(why)
    chaos.obey("")
    assert capsys.readouterr() == ("", "")


def test_help_lists_the_verbs(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.obey("help")
    assert "  throttle RATE [SECONDS] [request|answer]\n" in capsys.readouterr().out


def test_a_schedule_is_followed_and_ends_in_calm(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.follow([Turn(0, parse_fault("cut")), Turn(0, parse_fault("drop 2"))]).join()
    said = [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["cut", "drop 2", "pass"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--seconds", "5"], "give --random too"),
        (["--every", "0", "cut"], "has to be above 0"),
        (["--every", "5s", "shake"], "'shake' is no verb"),
        (["--do", "stall x"], "is no number"),
        (["--listen", "unix:/tmp/x"], "only --to may be a unix socket"),
        (["--to", "tenure://"], "names no server"),
        (["--to", "foo"], "'foo' names no server; use HOST:PORT"),
        (["--to", "no-such-machine.invalid:7333"], "'no-such-machine.invalid' is the name of no machine"),
        (["--random", "--seconds", "0"], "0 s are over before the first fault; give a time above 0"),
        (["--do", "throttle 0"], "RATE has to be a whole number of 1 or more"),
        (["--every", "5s", "drop 0"], "N has to be a whole number of 1 or more"),
    ],
)
def test_what_is_refused_is_said_with_the_option(args: list[str], says: str) -> None:
    from tenure.cli.chaos import chaos

    result = CliRunner().invoke(chaos, args)
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("|", " ").split())


def test_an_address_for_everybody_or_one_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for listen, says in (("0.0.0.0:0", "open to other machines"), (address, f"cannot listen on {address}: ")):
            with pytest.raises(SystemExit) as ended:
                main(["chaos", "--listen", listen])
            assert ended.value.code == 1
            assert says in capsys.readouterr().err
