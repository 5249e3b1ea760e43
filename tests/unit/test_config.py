"""Where the broker's address comes from, and settings that cannot be."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenure.config import LIMITS, Settings, find_broker, seconds, whole
from tenure.errors import ConfigError
from tenure.names import shown

HERE = "tenure://here:1"


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_the_nearest_source_wins(tmp_path: Path) -> None:
    folder = project(tmp_path, f'[tool.tenure]\nbroker = "{HERE}"\n')
    environ = {"TENURE_BROKER": "tenure://variable:1"}
    assert find_broker("tenure://given:1", "tenure://app:1", environ=environ, folder=folder) == "tenure://given:1"
    assert find_broker(None, "tenure://app:1", environ=environ, folder=folder) == "tenure://app:1"
    assert find_broker(environ=environ, folder=folder) == "tenure://variable:1"
    assert find_broker(environ={"TENURE_BROKER": ""}, folder=folder) == HERE
    assert find_broker(environ={}, folder=project(tmp_path, "[tool.other]\n")) == "tenure://127.0.0.1:7333"


def test_the_project_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    project(tmp_path, f'[tool.tenure]\nbroker = "{HERE}"\n')
    project(tmp_path / "a", "[project]\nname = 'x'\n")
    monkeypatch.chdir(below)
    assert find_broker(environ={}) == HERE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.tenure]\nbroker = 3\n", ["pyproject.toml: broker is 3", "tenure://127.0.0.1:7333"]),
        ("[tool.tenure]\nbroker = 'localhost'\n", ["'localhost'", "no URL"]),
        ("[tool.tenure]\nbrocker = 'tenure://x'\n", ["'brocker'", "Did you mean 'broker'?"]),
        ("[tool]\ntenure = 3\n", ["[tool.tenure]"]),
        ("[tool.tenure\n", ["pyproject.toml", "repair it"]),
        ("tool = 3\n", ["pyproject.toml"]),
    ],
)
def test_a_bad_project_file_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        find_broker(environ={}, folder=project(tmp_path, text))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_bad_url_names_its_source() -> None:
    with pytest.raises(ConfigError, match="--broker is 'x'"):
        find_broker("x")
    with pytest.raises(ConfigError, match=r"App\(broker=\) is ''"):
        find_broker(None, "", environ={})
    with pytest.raises(ConfigError, match=r"\$TENURE_BROKER is 'x'"):
        find_broker(environ={"TENURE_BROKER": "x"})


def test_the_defaults() -> None:
    settings = Settings()
    assert (settings.visibility_timeout, settings.grace, settings.add_timeout, settings.answer_limit) == (30, 25, 5, 1)
    assert (settings.result_ttl, settings.key_window) == (3600, 86_400)
    assert (settings.max_attempts, settings.max_losses, settings.priority, settings.pool_size) == (20, 5, 5, 8)


@pytest.mark.parametrize(
    "value", [-1, 400, math.nan, math.inf, -math.inf, True, "5", None, 10**400, 2**20_000, timedelta(days=1)], ids=shown
)
def test_an_impossible_setting_names_value_and_limit(value: Any) -> None:
    with pytest.raises(ConfigError, match="add_timeout=") as caught:
        Settings(add_timeout=value)
    assert "seconds" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "8", None, 10**5000, math.nan], ids=shown)
def test_an_impossible_count_names_value_and_limit(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"pool_size=.* whole number from 1 to 1000 connections"):
        Settings(pool_size=value)


def test_seconds_take_a_timedelta() -> None:
    assert seconds("delay", timedelta(minutes=1, milliseconds=500)) == 60.5
    assert seconds("delay", 3) == 3.0
    assert type(seconds("delay", 3)) is float
    assert whole("priority", 9) == 9
    for name, limit in LIMITS.items():
        checked = whole(name, int(limit.least)) if limit.whole else seconds(name, limit.least)
        assert checked == limit.least


def test_the_address_of_a_unix_socket_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"--broker is 'unix:a b.sock'.* tenure\\+unix://{tmp_path}/a%20b.sock$"):
        find_broker("unix:a b.sock")
