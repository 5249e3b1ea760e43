"""The commands of docs/howto/operate.md print what the page shows."""

from __future__ import annotations

import pytest

from tests.stage.apps import operated
from tests.stage.harness import Stage
from tests.stage.pages import blocks


def spoken(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what is printed after it."""
    parts = [part.split("\n", 1) for part in block.split("$ tenure ")[1:]]
    return [(command, printed) for command, printed in parts]


def words(text: str) -> list[list[str]]:
    """The words of each line that has any; a table's rule is left out."""
    lines = [line.split() for line in text.splitlines()]
    return [line for line in lines if line and not set(line[0]) <= {"─", "-"}]


@pytest.fixture
def stage(bare: Stage) -> Stage:
    bare.start_server()
    bare.use(operated.app)
    return bare


def test_the_page_is_right(stage: Stage) -> None:
    for delay in (None, None, 3600):
        operated.work.options(delay=delay).delay(1)
    stage.env["TENURE_BROKER"] = stage.url
    commands = [pair for block in blocks("operate.md", "console") for pair in spoken(block)]
    assert len(commands) == 5
    for command, printed in commands:
        assert words(stage.run(*command.split()).stdout) == words(printed), command
    assert stage.check(operated.app.counts)["totals"]["cancelled"] == 3
