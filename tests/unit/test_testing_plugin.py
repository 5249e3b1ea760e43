"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tenure import testing

pytest_plugins = ["pytester"]

SHOP = """
from tenure import App

app = App("shop", broker="tenure://127.0.0.1:1")
sent = []

@app.task
def send(to):
    sent.append(to)

@app.task(max_attempts=2)
def fail(order):
    raise LookupError(f"no order {order}")
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with an app in `shop`, and a configuration that names it."""
    pytester.makepyfile(shop=SHOP)
    pytester.makeini("[pytest]\ntenure_app = shop:app\naddopts = -p no:randomly -p no:cacheprovider\npythonpath = .\n")
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest in a process of its own, the plugin named where the installed package does not name it yet."""
    known = any(point.value == "tenure.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "tenure.testing.plugin"]
    return project.run(sys.executable, "-m", "pytest", "-q", *plugin, *args, timeout=50)


def test_the_fixtures_switch_the_app_for_the_test_and_back(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import shop

        def test_one(tenure_app, tenure_worker):
            assert tenure_app is shop.app is tenure_worker.app
            shop.send.delay("ann")
            tenure_worker.assert_added(shop.send, "ann", count=1)
            tenure_worker.run_all()
            assert shop.sent == ["ann"]

        def test_another_begins_with_none(tenure_worker):
            assert tenure_worker.added() == []
            tenure_worker.clock.move(60)

        def test_the_app_alone(tenure_app):
            assert shop.send.delay("bob").state() == "ready"

        def test_without_fixtures():
            assert shop.app.broker_url == "tenure://127.0.0.1:1"
        """
    )
    run(project).assert_outcomes(passed=4)


def test_an_error_of_a_task_is_shown_where_it_was_raised(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import shop

        def test_it(tenure_worker):
            shop.fail.delay(7)
            tenure_worker.run_all()

        def test_diff(tenure_worker):
            shop.send.delay("ann")
            tenure_worker.assert_added(shop.send, "bob")
        """
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            '*raise LookupError(f"no order {order}")',
            "E*LookupError: no order 7",
            "shop.py:*: LookupError",
            "E*shop.send('bob') was not added",
            "E*shop.send('ann')",
        ]
    )
    result.stdout.no_fnmatch_line("*tenure/testing/inline.py:*")


def test_an_overridden_fixture_names_the_app(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\npythonpath = .\n")
    project.makeconftest(
        """
        import pytest
        from tenure import App

        @pytest.fixture
        def tenure_app():
            app = App("made", broker="tenure://127.0.0.1:1")

            @app.task(name="double")
            def double(number):
                return 2 * number

            return app
        """
    )
    project.makepyfile(
        """
        def test_it(tenure_app, tenure_worker):
            job = tenure_app.tasks["double"].delay(4)
            tenure_worker.run_all()
            assert job.result(timeout=0) == 8
        """
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "*tenure_app is not set: name your app*shop.jobs:app*"),
        ("tenure_app = shop", "*tenure_app is 'shop': name your app*"),
        ("tenure_app = shop:sent", "*tenure_app = 'shop:sent': sent in shop is no App*"),
        ("tenure_app = shop:apps", "*tenure_app = 'shop:apps': apps in shop is no App*"),
    ],
)
def test_an_app_that_is_not_found_says_what_to_write(project: pytest.Pytester, line: str, text: str) -> None:
    project.makeini(f"[pytest]\n{line}\npythonpath = .\n")
    project.makepyfile("def test_it(tenure_worker): pass")
    result = run(project)
    assert result.ret != 0
    result.stdout.fnmatch_lines([text])


def test_a_test_that_calls_no_server_without_the_fixture_is_told_of_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import unittest
        from tenure import App

        other = App("other", broker="tenure://127.0.0.1:1", add_timeout=0.1)

        @other.task
        def ring():
            pass

        def test_direct():
            ring.delay()

        def test_as_a_cause():
            try:
                ring.delay()
            except Exception as error:
                raise LookupError("order not taken") from error

        class TestClass(unittest.TestCase):
            def test_unit(self):
                ring.delay()

        def test_with_the_fixture(tenure_app):
            ring.delay()

        def test_something_else():
            raise ConnectionError("no network")
        """
    )
    result = run(project, "--tb=short")
    result.assert_outcomes(failed=5)
    hint = "E*this test does not use the fixture tenure_app (or tenure_worker)*no server is needed"
    # Not in the summary at the end, which is cut short or not by what runs the tests.
    said = [line for line in result.outlines if re.match("E .*this test does not use the fixture", line)]
    result.stdout.fnmatch_lines(["*is `tenure server` running there?*", hint])
    assert len(said) == 3


def test_many_processes_of_xdist_do_not_meet(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        import shop

        @pytest.mark.parametrize("number", range(40))
        def test_it(tenure_worker, number):
            shop.send.delay(number)
            tenure_worker.run_all()
            assert shop.sent.pop() == number
            assert tenure_worker.added()[0].args == (number,)
            assert len(tenure_worker.added()) == 1
        """
    )
    run(project, "-n", "2", "-p", "xdist").assert_outcomes(passed=40)


def test_the_plugin_loads_nothing_of_the_package_into_a_run_that_does_not_use_it() -> None:
    code = (
        "import sys, tenure.testing.plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith(('tenure.server', 'tenure.engine', 'apsw'))))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_what_the_package_exports_is_there() -> None:
    assert all(getattr(testing, name).__name__ == name for name in testing.__all__)
    assert not hasattr(testing, "InlineWroker")
