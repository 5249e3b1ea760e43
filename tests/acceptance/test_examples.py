"""The examples as their READMEs have them: copied to a clean folder, run, and held against what the READMEs show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.stage.harness import ROOT, TENURE, Running, Stage, wait_for

EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent
DEV = "tenure dev "


def copy(example: str, bare: Stage) -> str:
    """Copy an example into the stage's folder, where it finds nothing of this project; returns its README."""
    shutil.copytree(EXAMPLES / example, bare.place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    del bare.env["PYTHONPATH"]
    bare.env["PATH"] = f"{BIN}:{bare.env['PATH']}"
    return (bare.place / "README.md").read_text(encoding="utf-8")


def commands(readme: str) -> list[tuple[str, str]]:
    """Return each command of a README with what it prints, but for those that install."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL))
    found = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", blocks, re.MULTILINE)
    return [(command, output) for command, output in found if not command.startswith("pip ")]


def start_dev(bare: Stage, words: list[str]) -> Running:
    """Start `tenure dev` at a free port, and have what runs in the folder find it."""
    dev = bare.start([str(TENURE), *words, "--listen", "127.0.0.1:0", "--no-reload"], bare.place / "dev.log")
    found = wait_for(lambda: re.search(r"^tenure server on (\S+),", dev.output, re.MULTILINE), 15, "a server")
    assert found is not None  # or wait_for had failed
    bare.url = bare.env["TENURE_BROKER"] = found[1]
    return dev


def shell(bare: Stage, command: str) -> str:
    """Run a command in the folder and return all that it prints."""
    done = subprocess.run(
        command, shell=True, check=False, cwd=bare.place, env=bare.env, text=True, timeout=40,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


def run_readme(example: str, bare: Stage) -> dict[str, Any]:
    """Run all commands of a README, see that each prints what it says, and return the totals of the record."""
    (start, _), *rest = [(command, output) for command, output in commands(copy(example, bare))]
    assert start.startswith(DEV)
    start_dev(bare, start.split()[1:])
    for command, output in rest:
        assert shell(bare, command) == output.replace(f"/home/you/{example}", str(bare.place)), command
    record: dict[str, Any] = bare.ask("record", "--verify")
    assert (record["verified"], record["balanced"], record["overlaps"]) == (True, True, 0)
    totals: dict[str, Any] = record["totals"]
    return totals


def test_thumbnails_are_made_once(bare: Stage) -> None:
    totals = run_readme("thumbnails", bare)
    # 12 photos, one of them changed, a file that is none; the repeats are 12, then 11, then 12 again.
    assert (totals["added"], totals["done"], totals["dead"], totals["duplicates"]) == (14, 13, 1, 35)
    small = sorted((bare.place / "small").iterdir())
    assert [file.name for file in small] == [f"sunset-{number:02}.jpg" for number in range(12)]
    for file in small:
        with Image.open(file) as image:
            assert (image.format, image.size) == ("JPEG", (256, 192))
    assert "PIL.UnidentifiedImageError" in shell(bare, "tenure dead ls")


def test_a_thumbnail_stands_upright_as_its_photo_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.thumbnails.thumbnails import app, calls
    from tenure.testing import inline_worker

    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the camera was held upright
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (1000, 500)).save(tmp_path / "photos" / "upright.jpg", exif=exif)
    with inline_worker(app) as worker:
        (call,) = calls(tmp_path / "photos", tmp_path / "small")
        job = call.delay()
        worker.run_twice(job)
    with Image.open(tmp_path / "small" / "upright.jpg") as image:
        assert image.size == (128, 256)
    assert [file.name for file in (tmp_path / "small").iterdir()] == ["upright.jpg"]


def test_reports_are_written_once(bare: Stage) -> None:
    totals = run_readme("reports", bare)
    assert (totals["added"], totals["done"], totals["dead"], totals["duplicates"]) == (7, 6, 1, 1)
    assert sorted(file.name for file in (bare.place / "reports").iterdir()) == ["2026-10-1.txt", "2026-10-2.txt"]


KILLED_AFTER_EACH_ADD = """
import os
import signal
from pathlib import Path

import reports

add = reports.then


def then(step):
    id = add(step)
    mark = Path(f"killed-behind-{step.task.name}")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return id


reports.then = then
app = reports.app
"""


def test_a_step_that_is_killed_behind_its_add_adds_the_next_one_once(bare: Stage) -> None:
    copy("reports", bare)
    (bare.place / "deadly.py").write_text(KILLED_AFTER_EACH_ADD, encoding="utf-8")
    bare.start_server()
    worker = bare.start_worker("w", "--processes", "1", "--threads", "1", app="deadly")
    bare.env["TENURE_BROKER"] = bare.url
    report = shell(bare, "python -m reports 2026-10")
    assert report.startswith("2026-10/1: a new report\n"), report + worker.output
    assert report.endswith("all            53.60\n"), report + worker.output
    assert len(list(bare.place.glob("killed-behind-*"))) == 2
    record = bare.ask("record", "--verify")
    totals = record["totals"]
    assert (record["verified"], record["overlaps"]) == (True, 0)
    assert (totals["added"], totals["done"], totals["handouts"]["done"]) == (3, 3, 3)
    # The step before may be lost with a step that is killed, its "done" being on its way: it adds once more, too.
    assert totals["duplicates"] == totals["handouts"]["lost"] in (2, 3)
    assert worker.stop() == 0
