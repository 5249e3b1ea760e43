"""What is written on the command line is read as a person means it, or refused with an example of how to write it."""

from __future__ import annotations

from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.cli.jobs import job_id
from tenure.cli.options import seconds, size


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("64KiB", 65_536), ("64k", 65_536), ("1MiB", 2**20), ("2 MB", 2**21), ("1g", 2**30), (" 10 ", 10)],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "KiB", "one", "1T", "MiBMiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="64KiB or 1MiB"):
        size(text)


@pytest.mark.parametrize(
    ("text", "length"), [("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), ("1h", 3600.0), ("2d", 172_800.0), ("0", 0.0)]
)
def test_times(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "s", "-1s", "nan", "inf", "1e99", "ten", "1ms", "1 hour", "1hh"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="30s, 10m, 1h or 2d"):
        seconds(text)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (size, seconds, job_id):
        with suppress(click.BadParameter):
            read(text)


def test_ids_with_dashes_and_capitals() -> None:
    id = "01a2289619277232ac1a1a1e18dacd70"
    assert job_id(id) == job_id(id.upper()) == job_id("01A22896-1927-7232-ac1a-1a1e18dacd70") == id
    for text in ("", id[:-1], id + "0", "g" * 32):
        with pytest.raises(click.BadParameter, match="32 hexadecimal digits"):
            job_id(text)
