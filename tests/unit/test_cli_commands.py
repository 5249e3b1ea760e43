"""The operator's commands over a broker that answers from memory: what they print, and with which code they end."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from tenure.broker import CancelAnswer, QueueVerb
from tenure.cli import jobs, queues, record
from tenure.cli.main import COMMANDS, cli, main
from tenure.codec import pack_failure
from tenure.errors import BrokerUnavailable, JobNotFound, KeyConflict, QueueNotFound
from tenure.inspection import Inspection
from tenure.outcome import Failure, Link
from tests.unit.worker_fakes import worker_command

ID = "01a2289619277232ac1a1a1e18dacd70"
OTHER = "01a2289619277232ac1a1a1e18dacd71"
HANDOUTS = ("done", "retried", "released", "left", "returned", "lost", "dead", "cancelled")
JOBS = ("added", "done", "dead", "cancelled", "purged", "scheduled", "ready", "running")


def _tally(**counts: int) -> dict[str, Any]:
    handouts = {name: counts.pop(f"h_{name}", 0) for name in HANDOUTS}
    flat = (*JOBS, "duplicates", "refused", "expired", "handed_out")
    return {**dict.fromkeys(flat, 0), **counts, "handouts": handouts}


def _job(id: str, **fields: Any) -> dict[str, Any]:
    failure = pack_failure(Failure("ValueError", "no luck", "Traceback (most recent call last):\n  here")).hex()
    handout = {
        "number": 1, "worker": "w1", "begin_at": 1_700_000_000_000, "end_at": 1_700_000_001_000, "ended": "dead",
        "cause": "", "late": False, "error": failure,
    }  # fmt: skip
    job = {
        "id": id, "state": "dead", "reason": "gave up after 1 attempt: ValueError: no luck", "task": "shop.charge",
        "queue": "default", "priority": 5, "key": id, "added_at": 1_700_000_000_000, "run_at": None, "expires": None,
        "ended_at": 1_700_000_001_000, "attempts": 1, "max_attempts": 20, "losses": 0, "max_losses": 5, "cancel": None,
        "body": "", "handouts": [handout],
    }  # fmt: skip
    return job | fields


class MemoryAdmin:
    """The operator's verbs over a few dead jobs."""

    def __init__(self) -> None:
        self.jobs = {id: _job(id) for id in (ID, OTHER)}
        totals = _tally(added=3, done=1, dead=2, handed_out=3, h_done=1, h_dead=2)
        worker = _tally(handed_out=3, h_done=1, h_dead=2)
        self.ledger = {
            "queues": {"[red]default": totals}, "workers": {"w1": worker}, "totals": totals, "overlaps": 0,
            "balanced": True,
        }  # fmt: skip
        self.differences: list[str] = []
        self.conflicts: dict[str, str] = {}
        self.gone_for = ""
        self.flags: dict[str, Any] = {"paused": False, "closed": False, "unknown_tasks": {}}

    def record(self, verify: bool = False) -> dict[str, Any]:
        if not verify:
            return self.ledger
        return {"record": self.ledger, "verified": not self.differences, "differences": self.differences}

    def queues(self) -> list[dict[str, Any]]:
        return [{"name": name, "waiting": 2, **self.flags, **tally} for name, tally in self.ledger["queues"].items()]  # type: ignore[attr-defined]

    def job(self, id: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.jobs.get(id))

    def dead(self, queue: str | None, limit: int, after: str | None) -> list[dict[str, Any]]:
        rows = [job for id, job in sorted(self.jobs.items()) if after is None or id > after]
        return [job for job in rows if queue in (None, job["queue"]) and job["state"] == "dead"][:limit]

    def requeue(self, id: str) -> str:
        if id in self.conflicts:
            raise KeyConflict(id, self.conflicts[id], "")
        if id == self.gone_for:
            raise BrokerUnavailable("nobody is there")
        return self._move(id, "ready")

    def purge(self, id: str) -> str:
        return self._move(id, "purged")

    def cancel(self, id: str, terminate: bool = False) -> CancelAnswer:
        if id not in self.jobs:
            raise JobNotFound(f"no job {id} is known here")
        return cast("CancelAnswer", self._move(id, "cancelled"))

    def switch(self, verb: QueueVerb, queue: str) -> str:
        self._check(queue)
        return {"pause": "paused", "resume": "resumed", "close": "closed", "open": "open"}[verb]

    def purge_queue(self, queue: str) -> int:
        self._check(queue)
        return 12

    def _check(self, queue: str) -> None:
        if queue not in self.ledger["queues"]:  # type: ignore[operator]
            raise QueueNotFound(f"no queue {queue!r} is known here")

    def _move(self, id: str, state: str) -> str:
        if id not in self.jobs:
            return "unknown"
        if self.jobs[id]["state"] != "dead":
            return f"already {self.jobs[id]['state']}"
        self.jobs[id]["state"] = state
        return state


Run = Callable[..., Result]


@pytest.fixture
def admin() -> MemoryAdmin:
    return MemoryAdmin()


@pytest.fixture
def run(admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command line over `admin`."""

    @contextmanager
    def inspect(broker: str | None = None) -> Iterator[Inspection]:
        yield Inspection(admin)

    for module in (jobs, queues, record):
        monkeypatch.setattr(module, "inspect", inspect)

    def invoke(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_a_record_shows_what_was_counted_and_leaves_the_rest_out(run: Run) -> None:
    shown = run("record").output
    assert "[red]default" in shown  # a name is no markup
    assert "(total)" in shown
    assert "the record is balanced" in shown
    for absent in ("cancelled", "purged", "retried", "duplicates", "refused"):
        assert absent not in shown


def test_a_record_that_does_not_verify_ends_with_1(run: Run, admin: MemoryAdmin) -> None:
    assert "verified" in run("record", "--verify").output
    admin.differences = ["queue 'default': done: the rows say 1, the record says 2"]
    admin.ledger["balanced"] = False
    shown = run("record", "--verify", code=1).output
    assert "NOT BALANCED" in shown
    assert "NOT verified" in shown
    assert admin.differences[0] in shown
    as_json = json.loads(run("record", "--verify", "--json", code=1).output)
    assert as_json["differences"] == admin.differences
    assert as_json["verified"] is False
    assert as_json["totals"]["done"] == 1


def test_json_of_a_record_is_the_record(run: Run, admin: MemoryAdmin) -> None:
    assert json.loads(run("record", "--json").output) == admin.ledger


def test_a_stopped_queue_and_tasks_that_nobody_knows_are_shown(run: Run, admin: MemoryAdmin) -> None:
    assert "stopped" not in run("queues").output
    admin.flags |= {"paused": True, "closed": True, "unknown_tasks": {"shop.mail": 3, "shop.a": 1}}
    shown = run("queues").output
    assert "paused, closed" in shown
    assert "shop.a (1), shop.mail (3)" in shown
    assert json.loads(run("queues", "--json").output)[0]["unknown_tasks"] == {"shop.a": 1, "shop.mail": 3}


def test_queues_are_stopped_and_let_go_on(run: Run) -> None:
    name = "[red]default"
    assert run("pause", name).output == f"{name}: paused\n"
    assert run("resume", name, name).output == f"{name}: resumed\n"
    assert run("close", name).output == f"{name}: closed\n"
    assert json.loads(run("open", name, "--json").output) == {name: "open"}


def test_a_queue_that_is_not_there_is_named_with_one_that_is_like_it(run: Run) -> None:
    for verb in ("pause", "purge"):
        assert "Did you mean '[red]default'?" in str(run(verb, "[red]defualt", code=1).exception)
    assert "Did you mean" in str(run("purge", "[red]defualt", "--dry-run", code=1).exception)
    assert "Did you mean" not in str(run("close", "other", code=1).exception)


def test_a_queue_is_purged(run: Run, admin: MemoryAdmin) -> None:
    name = "[red]default"
    admin.ledger["queues"][name] |= {"ready": 3, "scheduled": 4}  # type: ignore[index]
    assert run("purge", name, "--dry-run").output == f"{name}: 7 jobs would be cancelled\n"
    assert run("purge", name).output == f"{name}: 12 jobs cancelled\n"
    assert json.loads(run("purge", name, "--json").output) == {"queue": name, "jobs": 12, "dry_run": False}


def test_jobs_are_cancelled(run: Run, admin: MemoryAdmin) -> None:
    assert run("cancel", ID).output == f"{ID}  cancelled\n"
    assert run("cancel", ID, "--terminate").output == f"{ID}  already cancelled\n"
    admin.jobs[OTHER]["state"] = "done"
    shown = run("cancel", OTHER, "f" * 32, code=1).output
    assert f"{OTHER}  already done" in shown
    assert "no job ffff" in shown


def test_queues(run: Run, admin: MemoryAdmin) -> None:
    assert "waiting workers" in run("queues").output
    assert json.loads(run("queues", "--json").output)[0]["waiting"] == 2
    admin.ledger["queues"] = {}
    assert run("queues").output == "no queue yet: the first job makes it\n"


def test_a_job_is_shown_with_its_error(run: Run) -> None:
    shown = run("job", ID).output
    assert shown.splitlines()[0] == f"job {ID}: dead (gave up after 1 attempt: ValueError: no luck)"
    assert "      Traceback (most recent call last):\n        here" in shown
    assert "hand-out 1: w1, " in shown
    assert "1 of 20" in shown
    found = json.loads(run("job", ID, "--json").output)
    assert found["handouts"][0]["error"] == {
        "kind": "ValueError", "text": "no luck", "traceback": "Traceback (most recent call last):\n  here",
        "notes": [], "chain": [],
    }  # fmt: skip


def test_notes_and_causes_of_an_error_are_shown(run: Run, admin: MemoryAdmin) -> None:
    links = (Link("cause", 1, "KeyError", "'x'"), Link("member", 2, "OSError", "line\nline\x1b[31m"))
    failure = Failure("shop.NoStock", "none left", "", ("ask the\nstore",), links)
    admin.jobs[ID]["handouts"][0]["error"] = pack_failure(failure).hex()
    shown = [line.removeprefix("      ") for line in run("job", ID).output.splitlines()[-6:]]
    assert shown == [
        "shop.NoStock: none left", "  note: ask the", "  note: store", "  caused by KeyError: 'x'",
        "    member OSError: line", "      line\\x1b[31m",
    ]  # fmt: skip
    error = json.loads(run("job", ID, "--json").output)["handouts"][0]["error"]
    assert error["notes"] == ["ask the\nstore"]
    assert error["chain"][0] == {"how": "cause", "depth": 1, "kind": "KeyError", "text": "'x'"}


def test_dates_beyond_the_calendar_and_broken_failures_are_shown(run: Run, admin: MemoryAdmin) -> None:
    admin.jobs[ID] |= {"run_at": 10**17, "cancel": "ask"}
    admin.jobs[ID]["handouts"][0] |= {"error": "00ff", "late": True}
    shown = run("job", ID).output
    assert "ms since 1970" in shown
    assert "bytes that are no failure: 00ff" in shown
    assert "a late settlement was refused" in shown


def test_the_dead_list(run: Run, admin: MemoryAdmin) -> None:
    shown = run("dead", "ls").output
    assert ID in shown
    assert OTHER in shown
    assert [row["id"] for row in json.loads(run("dead", "ls", "--json", "--limit", "1").output)] == [ID]
    assert run("dead", "ls", "--queue", "other").output == "no dead jobs\n"
    assert run("dead", "requeue", ID).output == f"{ID}  ready\n"
    assert run("dead", "requeue", ID, code=1).output == f"{ID}  already ready\n"
    assert json.loads(run("dead", "purge", "--all", "--json").output) == {OTHER: "purged"}
    assert run("dead", "purge", "--all").output == "no dead jobs\n"


def test_one_unknown_job_does_not_stop_the_others(run: Run) -> None:
    shown = run("dead", "purge", "f" * 32, ID, code=1).output
    assert f"{ID}  purged" in shown
    assert "no job ffff" in shown


def test_a_key_that_another_job_holds_is_that_jobs_outcome_and_the_others_go_on(run: Run, admin: MemoryAdmin) -> None:
    holder = "0190f3a2c0de7abc8def0123456789ff"
    admin.conflicts[ID] = holder
    found = json.loads(run("dead", "requeue", "--all", "--json", code=1).output)
    assert found[OTHER] == "ready"
    assert ID in found[ID]
    assert f"tenure job {holder}" in found[ID]
    assert "(" not in found[ID].replace(f"(`tenure job {holder}`)", "")
    assert f"{ID}  job {ID} stays dead" in run("dead", "requeue", ID, OTHER, code=1).output


def test_what_was_done_before_the_server_went_away_is_shown(run: Run, admin: MemoryAdmin) -> None:
    admin.gone_for = OTHER
    result = run("dead", "requeue", "--all", "--json", code=1)
    assert json.loads(result.output) == {ID: "ready"}
    assert isinstance(result.exception, BrokerUnavailable)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("dead", "purge"), "name the jobs' ids, or give --all"),
        (("dead", "purge", ID, "--all"), "and not both"),
        (("dead", "requeue", ID, "--queue", "a"), "--queue goes with --all"),
        (("job", "nonsense"), "32 hexadecimal digits"),
        (("dead", "ls", "--limit", "0"), "--limit"),
        (("worker",), "-A"),
        (("worker", "-A", "x", "--processes", "0"), "--processes"),
        (("worker", "-A", "x", "--grace", "soon"), "30s, 10m"),
        (("worker", "-A", "x", "--visibility-timeout", "0.01"), "too short"),
        (("worker", "-A", "x", "--queues", " , "), "names no queue"),
        (("server", "--max-body", "0"), "64KiB"),
        (("server", "--max-line", "1000"), "1KiB or more"),
        (("server", "--durability", "some"), "full"),
        (("serve",), "No such command"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(run: Run, args: tuple[str, ...], says: str) -> None:
    assert says in run(*args, code=2).output


@pytest.mark.parametrize(
    ("args", "queues"),
    [
        ((), None),
        (("--queues", " a, b,,a"), ("a", "b")),
        (("--queue", "x,y", "--queue", " z", "--queue", "x,y"), ("x,y", " z")),
        (("--queue", "b", "--queues", "a,b", "--queue", "c,"), ("a", "b", "c,")),
    ],
)
def test_a_worker_takes_from_the_queues_that_are_named(
    monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], queues: tuple[str, ...] | None
) -> None:
    code, _, (options,) = worker_command(monkeypatch, *args)
    assert (code, options.queues) == (0, queues)


def test_a_queue_that_is_named_takes_the_place_of_those_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_QUEUES", "a,b")
    assert worker_command(monkeypatch)[2][0].queues == ("a", "b")
    assert worker_command(monkeypatch, "--queue", "x,y")[2][0].queues == ("x,y",)


def test_errors_of_ours_become_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*args: object) -> None:
        raise BrokerUnavailable("nobody is there")

    monkeypatch.setattr(queues, "inspect", fails)
    with pytest.raises(SystemExit) as ended:
        main(["queues"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "tenure: nobody is there\n"


def test_a_closed_pipe_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def closed(**kwargs: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "main", closed)
    with pytest.raises(SystemExit) as ended:
        main(["queues"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == ""


def test_every_command_has_the_help_that_the_list_shows() -> None:
    context = click.Context(cli)
    for name, (_, text) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
        first = command.help.partition("\n")[0].rstrip(".")
        assert text.startswith(first) or first.startswith(text.split(" (")[0].rstrip("."))


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").output.startswith("tenure, version ")


def test_the_dead_list_fits_a_terminal_and_leaves_ids_whole(
    run: Run, admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "gave up after 20 attempts: " + "a long reason, " * 40
    admin.jobs[ID] |= {"reason": why, "task": "shop.billing.invoices.send_the_reminder"}
    for width in (80, 100, 200):
        out = io.StringIO()
        monkeypatch.setattr(jobs, "open_console", lambda out=out, width=width: Console(file=out, width=width))
        run("dead", "ls")
        lines = out.getvalue().splitlines()
        assert ID in out.getvalue()
        assert OTHER in out.getvalue()
        assert max(map(len, lines)) <= width
        assert len(lines) < 16
    assert why.strip() in run("dead", "show", ID).output


def test_the_dead_list_in_a_pipe_is_shortened_too_and_json_has_all_of_it(run: Run, admin: MemoryAdmin) -> None:
    why = "gave up after 20 attempts: " + "a long reason, " * 40
    admin.jobs[ID] |= {"reason": why}
    shown = run("dead", "ls").output
    assert f"{why[:90]}" in shown
    assert max(map(len, shown.splitlines())) <= 220
    assert json.loads(run("dead", "ls", "--json").output)[0]["reason"] == why
    assert why.strip() in run("dead", "show", ID).output


@pytest.mark.parametrize("command", ["record", "queues", "job", "dead ls", "dead requeue", "dead purge", "dead show"])
def test_help_speaks_of_an_app_only_where_there_is_one(command: str) -> None:
    shown = CliRunner().invoke(cli, [*command.split(), "--help"]).output
    assert "$TENURE_BROKER" in shown
    assert "App(broker" not in shown
    assert "App(broker" in CliRunner().invoke(cli, ["worker", "--help"]).output


@pytest.mark.usefixtures("run")
def test_a_terminal_without_the_letters_shows_the_rest(admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.ledger["queues"] = {"gr\u00fcn": admin.ledger["totals"]}
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    with pytest.raises(SystemExit) as ended:
        main(["queues"])
    assert ended.value.code == 0
    terminal.flush()
    assert b"gr?n" in terminal.buffer.getvalue()
