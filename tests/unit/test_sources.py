"""Settings in the environment and in pyproject.toml: which one counts, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenure import App, ConfigError
from tenure.cli import main
from tenure.config import Settings, load
from tenure.sources import KNOWN, OF_APP, OF_SERVER, OF_WORKER, Found, Sources


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.tenure]\n{text}")
    return folder


def test_the_code_comes_before_the_environment_and_this_before_the_file(tmp_path: Path) -> None:
    folder = project(tmp_path, "add_timeout = 3\npool_size = 4\nvisibility_timeout = '1m'\n")
    sources = Sources({"TENURE_ADD_TIMEOUT": "2s", "TENURE_POOL_SIZE": "6"}, folder)
    loaded = load({"pool_size": 5}, sources)
    assert loaded.settings == Settings(add_timeout=2.0, pool_size=5, visibility_timeout=60.0)
    assert loaded.sources == {
        "pool_size": "App(pool_size=)",
        "add_timeout": "$TENURE_ADD_TIMEOUT",
        "visibility_timeout": str(folder / "pyproject.toml"),
    }


def test_nothing_is_written_anywhere(tmp_path: Path) -> None:
    assert load({}, Sources({}, tmp_path)).settings == Settings()
    assert Sources({"TENURE_ADD_TIMEOUT": ""}, tmp_path).find("add_timeout") is None
    assert Sources({"TENURE_THREADS": "4"}, tmp_path).find("threads") == Found("4", "$TENURE_THREADS")


def test_an_app_looks_when_it_is_first_used_and_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    app, other = App("shop"), App("other", add_timeout=timedelta(seconds=4), compress_over=100)
    monkeypatch.setenv("TENURE_ADD_TIMEOUT", "2.5")
    assert (app.settings.add_timeout, other.settings.add_timeout) == (2.5, 4.0)
    monkeypatch.setenv("TENURE_ADD_TIMEOUT", "3")
    assert app.settings.add_timeout == 2.5
    assert (app.settings.compress_over, other.settings.compress_over) == (None, 100)


@pytest.mark.parametrize(
    ("environ", "text", "said"),
    [
        ({"TENURE_ADD_TIMEOUT": "soon"}, "", r"\$TENURE_ADD_TIMEOUT: 'soon' is not a length of time.*30s"),
        (
            {"TENURE_ADD_TIMEOUT": "10m"},
            "",
            r"\$TENURE_ADD_TIMEOUT: add_timeout=600\.0 is not possible: give 0\.1 to",
        ),
        ({"TENURE_POOL_SIZE": "many"}, "", r"\$TENURE_POOL_SIZE: 'many' is not a whole number"),
        ({"TENURE_POOL_SIZE": "0"}, "", r"\$TENURE_POOL_SIZE: pool_size=0 is not possible"),
        ({}, "pool_size = 2.5", r"pyproject\.toml: pool_size=2\.5 is not possible"),
        ({}, "pool_size = true", r"pyproject\.toml: pool_size=True is not possible"),
        ({}, "add_timeout = [1]", r"pyproject\.toml: add_timeout=\[1\] is a list"),
        ({}, "add_timout = 1", r"no setting 'add_timout'\. Did you mean 'add_timeout'\? Settings: broker, add_timeout"),
        ({"TENURE_ADD_TIMOUT": "1"}, "", r"^\$TENURE_ADD_TIMOUT is no setting\. Did you mean \$TENURE_ADD_TIMEOUT\?$"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    tmp_path: Path, environ: dict[str, str], text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load({}, Sources(environ, project(tmp_path, text)))


def test_variables_that_are_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "TENURE_PORT": "tcp://10.0.0.7:7333",
        "TENURE_PORT_7333_TCP_ADDR": "10.0.0.7",
        "TENURE_SERVICE_HOST": "10.0.0.7",
        "TENURE_HOME": "/srv",
    }
    assert load({}, Sources(environ, tmp_path)).sources == {}


@pytest.mark.parametrize("command", sorted(main.SETTINGS_OF))
def test_the_settings_of_a_command_are_all_its_options_but_those_that_an_app_has_too(command: str) -> None:
    found = main.cli.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    names = {parameter.name for parameter in found.params} - {"app", "others", *OF_APP}
    assert names - {"log_level"} == set(main.SETTINGS_OF[command]) - {"log_level"}
    assert len(set(KNOWN)) == len(KNOWN) == len(OF_APP) + len(OF_WORKER) + len(OF_SERVER)


def shown(*args: str, env: dict[str, str] | None = None) -> dict[str, dict[str, tuple[Any, str]]]:
    """Return what `tenure settings` prints: part -> setting -> its value and source."""
    done = CliRunner().invoke(main.cli, ["settings", "--json", *args], env=env, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    parts = json.loads(done.output)
    return {part: {row["name"]: (row["value"], row["source"]) for row in rows} for part, rows in parts.items()}


def test_the_command_shows_each_value_and_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, "queues = ['a', 'b']\nmax_body = '2MiB'\ngrace = 3\n"))
    file = str(tmp_path / "pyproject.toml")
    parts = shown(env={"TENURE_BROKER": "tenure://there:1", "TENURE_THREADS": "3"})
    assert parts["app"]["broker"] == ("tenure://there:1", "$TENURE_BROKER")
    assert parts["app"]["add_timeout"] == (5.0, "default")
    assert parts["worker"]["queues"] == ("a,b", file)
    assert parts["worker"]["threads"] == (3, "$TENURE_THREADS")
    assert parts["worker"]["grace"] == (3.0, file)
    assert parts["server"]["max_body"] == (2 * 1024**2, file)
    assert parts["server"]["listen"] == ("127.0.0.1:7333", "default")
    assert parts["app"].keys() == set(OF_APP)


def test_the_command_says_what_the_code_of_an_app_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings_shop.py").write_text("from tenure import App\napp = App('shop', add_timeout=2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert shown("-A", "settings_shop")["app"]["add_timeout"] == (2.0, "App(add_timeout=)")


def test_a_table_for_people() -> None:
    done = CliRunner().invoke(main.cli, ["settings"], env={"TENURE_THREADS": "3"})
    assert done.exit_code == 0
    (line,) = [line for line in done.output.splitlines() if "threads" in line]
    assert line.split() == ["worker", "threads", "3", "$TENURE_THREADS"]


def test_a_commands_bad_value_names_its_variable() -> None:
    done = CliRunner().invoke(main.cli, ["worker", "-A", "x"], env={"TENURE_THREADS": "x"})
    assert done.exit_code == 2
    assert "TENURE_THREADS" in done.output
    done = CliRunner().invoke(main.cli, ["server"], env={"TENURE_LISTEN": "10.0.0.1:7333"})
    assert done.exit_code != 0
    assert "10.0.0.1:7333" in str(done.exception) + done.output
