"""What `tenure dev` does about each event, with processes that only note what they are told; and what it refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tenure.cli import dev
from tenure.cli.dev import Announced, Blind, Changed, Development, Ended, Rested, Told
from tenure.errors import ConfigError

URL = "tenure://127.0.0.1:7333"


class Process:
    """A process that runs until the test ends it."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.told = 0
        self.returncode: int | None = None

    def terminate(self) -> None:
        self.told += 1


class Scene:
    """A `Development` whose server has begun; `happens` lets it deal with one event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folders: Sequence[str] = (".",)) -> None:
        self.started: list[Process] = []
        monkeypatch.setattr(Development, "_start", self._start)
        self.dev = Development(["server"], ["worker"], folders, URL)
        self.dev._server = cast("Any", self._start(["server"]))
        for fd in (*self.dev._server_pipe, *self.dev._worker_pipe):  # no process is there to hold them
            os.close(fd)

    def _start(self, words: Sequence[str], *_: int, **__: Any) -> Process:
        self.started.append(Process(words))
        return self.started[-1]

    def happens(self, event: Any) -> None:
        self.dev._on(event)

    def ends(self, process: Process, code: int = 0) -> None:
        process.returncode = code
        self.happens(Ended(cast("Any", process)))

    @property
    def server(self) -> Process:
        return self.started[0]

    @property
    def worker(self) -> Process:
        """The latest."""
        return self.started[-1]


def begun(monkeypatch: pytest.MonkeyPatch, folders: Sequence[str] = (".",)) -> Scene:
    scene = Scene(monkeypatch, folders)
    scene.happens(Announced(URL))
    return scene


def test_the_worker_begins_when_the_server_has_said_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.happens(Changed("shop.py"))
    assert scene.started == [scene.server]
    scene.happens(Announced(URL))
    assert scene.worker.words == ["worker", "--broker", URL]


def test_many_changes_make_one_new_worker_after_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch)
    old = scene.worker
    scene.happens(Changed("shop.py"))
    scene.happens(Changed("mail.py"))
    assert (old.told, len(scene.started)) == (1, 2)
    scene.ends(old)
    assert len(scene.started) == 3
    scene.happens(Changed("shop.py"))
    assert scene.worker.told == 1


def test_the_worker_ends_before_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch)
    scene.happens(Told())
    assert (scene.worker.told, scene.server.told) == (1, 0)
    scene.happens(Changed("shop.py"))
    scene.happens(Told())
    assert (scene.worker.told, scene.server.told) == (2, 0)  # the second time it leaves at once
    scene.ends(scene.worker)
    assert (len(scene.started), scene.server.told) == (2, 1)
    scene.ends(scene.server)
    assert not scene.dev._runs()
    assert scene.dev._exit_code == 0


def test_told_while_the_server_begins_it_starts_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.happens(Told())
    scene.happens(Announced(URL))
    assert (scene.started, scene.server.told) == ([scene.server], 1)


def test_without_its_server_it_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    scene = begun(monkeypatch)
    scene.ends(scene.server, -9)
    assert scene.worker.told == 1
    scene.ends(scene.worker)
    assert not scene.dev._runs()
    assert scene.dev._exit_code == 1
    assert capsys.readouterr().out == "tenure dev: the server has ended (-9)\n"


def test_a_worker_that_ends_by_itself_waits_for_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch)
    scene.ends(scene.worker, 1)
    assert (len(scene.started), scene.server.told) == (2, 0)
    scene.happens(Changed("shop.py"))
    assert len(scene.started) == 3


@pytest.mark.parametrize("folders", [(".",), ()], ids=["reload", "no reload"])
@pytest.mark.parametrize("code", [-9, 0])
def test_a_worker_that_was_ended_from_outside_starts_again(
    code: int, folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "PAUSE", 0.0)
    scene = begun(monkeypatch, folders)
    scene.ends(scene.worker, code)
    assert (len(scene.started), scene.server.told) == (2, 0)
    scene.happens(scene.dev._events.get(timeout=5))
    assert len(scene.started) == 3
    scene.happens(Rested())
    assert len(scene.started) == 3, "there is one already"


def test_a_worker_that_was_ended_from_outside_does_not_start_while_all_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "PAUSE", 0.0)
    scene = begun(monkeypatch)
    scene.ends(scene.worker, -9)
    scene.happens(Told())
    scene.happens(scene.dev._events.get(timeout=5))
    assert (len(scene.started), scene.server.told) == (2, 1)


@pytest.mark.parametrize("what", ["the worker", "the watching"])
def test_what_cannot_come_back_ends_it(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch, () if what == "the worker" else (".",))
    if what == "the worker":
        scene.ends(scene.worker, 1)
    else:
        scene.happens(Blind("no more watches"))
        scene.ends(scene.worker)
    assert scene.server.told == 1
    assert scene.dev._exit_code == 1


@pytest.fixture
def no_watchfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)


@pytest.mark.usefixtures("no_watchfiles")
def test_reloading_without_watchfiles_names_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[reload\]'"):
        dev._folders_to_watch(True, ())
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[reload\]'"):
        dev._folders_to_watch(None, ("src",))
    assert dev._folders_to_watch(None, ()) == ()
    assert "nothing is reloaded without watchfiles: pip install 'tenure[reload]'" in capsys.readouterr().out
    assert dev._folders_to_watch(False, ()) == ()


def test_what_is_watched() -> None:
    assert dev._folders_to_watch(None, ()) == (".",)
    assert dev._folders_to_watch(True, ("src", "lib")) == ("src", "lib")
    done = CliRunner().invoke(dev.dev, ["-A", "shop", "--no-reload", "--watch", "."])
    assert done.exit_code == 2
    assert "--watch says what to reload for" in done.output


def test_the_folder_is_kept_out_of_version_control(tmp_path: Path) -> None:
    folder = dev._folder(str(tmp_path / "deep" / "data"))
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    (folder / ".gitignore").write_text("mine", encoding="utf-8")
    assert dev._folder(str(folder)) == folder
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "mine"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Choose another folder"):
        dev._folder(str(tmp_path / "file" / "data"))
