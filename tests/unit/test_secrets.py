"""Where a broker's URL is shown, its password is not."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tenure.cli.main import cli


@pytest.mark.parametrize("url", ["redis://me:hush@127.0.0.1:1", "redis:/me:hush@h", "redi://me:hush@h"])
@pytest.mark.parametrize("command", [["settings"], ["settings", "--json"], ["record"]])
def test_no_command_shows_the_password_of_a_brokers_url(
    url: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_BROKER", url)
    said = CliRunner().invoke(cli, command)
    shown = f"{said.output} {said.exception}"
    assert "***" in shown or "127.0.0.1:1" in shown
    assert "hush" not in shown
