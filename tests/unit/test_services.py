"""What becomes of tests whose server is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.stage import redis_servers
from tests.stage.harness import ROOT


@pytest.mark.parametrize(
    ("required", "code", "line"),
    [
        ("", 0, "1 tests SKIPPED: redis-server or valkey-server is not installed (make services)"),
        ("1", 1, "redis-server or valkey-server is not installed (make services)"),
    ],
)
def test_a_missing_server_is_said_loudly_and_fails_where_it_is_required(required: str, code: int, line: str) -> None:
    test = "tests/unit/test_redis_link.py::test_a_call_returns_what_the_script_does"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nowhere", "TENURE_REQUIRE_SERVICES": required, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stdout
    assert line in ran.stdout


def test_valkey_comes_in_a_package_and_is_missed_as_loudly_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TENURE_REQUIRE_SERVICES", raising=False)
    assert redis_servers.needed_valkey().endswith("/valkey-server")
    monkeypatch.setattr(redis_servers, "find_spec", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match=redis_servers.MISSING):
        redis_servers.needed_valkey()
    monkeypatch.setenv("TENURE_REQUIRE_SERVICES", "1")
    with pytest.raises(pytest.fail.Exception, match=redis_servers.MISSING):
        redis_servers.needed_valkey()
