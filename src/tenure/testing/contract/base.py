"""What every part of the contract begins with: a scene for each test, and what a missing capability comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from tenure.broker import Added
from tenure.errors import AddError
from tenure.message import When
from tenure.testing.contract.scene import Scene, add
from tenure.testing.contract.site import BrokerSite

LONGEST_DELAY = 5.0
"""Seconds that a job is delayed by in these tests at most; a broker that cannot do that has to refuse it."""

Test = Callable[..., None]

OPTIONS: dict[str, dict[str, Any]] = {
    "counts_losses": {"max_losses": 2},
    "job_visibility_timeout": {"visibility_timeout": 1.0},
    "keys": {"key": "a key"},
    "max_delay": {"run_at": When(LONGEST_DELAY, relative=True)},
    "priorities": {"priority": 9},
}
"""For each capability that is seen in a job's options: such an option, which is refused where there is none of it."""


class ContractPart:
    """A part of the contract; the fixture `site` comes from whoever subclasses it."""

    def __init_subclass__(cls) -> None:
        for name, member in vars(cls).items():
            if name.startswith("test_"):
                # pytest's -k finds a test by the names of its attributes too.
                setattr(member, cls.__name__, True)
                member.contract_part = cls

    @pytest.fixture
    def scene(self, site: BrokerSite) -> Iterator[Scene]:
        """A queue that nobody else has, and clients that are closed after the test."""
        scene = Scene(site)
        try:
            yield scene
        finally:
            scene.close()


def needs(*flags: str) -> Callable[[Test], Test]:
    """Run the test where the capabilities say all of these; else hold the broker to what it says that it is not.

    `network` is no capability: a site without addresses and proxies has to be one of a broker in one process.
    """

    def decorate(test: Test) -> Test:
        @wraps(test)
        def held(self: ContractPart, **given: Any) -> None:
            __tracebackhide__ = True
            scene: Scene = given["scene"] if "scene" in given else given["rough"]
            lacking = next((flag for flag in flags if not _has(scene, flag)), None)
            if lacking is None:
                test(self, **given)
            else:
                scene.denied = "one_process" if lacking == "network" else lacking
                _assert_lacking(scene, lacking)

        return held

    return decorate


def _has(scene: Scene, flag: str) -> bool:
    if flag == "network":
        return bool(scene.site.addresses or scene.site.proxies)
    value = getattr(scene.can, flag)
    return value is None or bool(value >= LONGEST_DELAY if flag == "max_delay" else value)


def _assert_lacking(scene: Scene, flag: str) -> None:
    __tracebackhide__ = True
    if flag in OPTIONS:
        ((word, _),) = OPTIONS[flag].items()
        assert_refused(add(scene.broker, [scene.message(**OPTIONS[flag])])[0], word)
    elif flag == "operated":
        assert scene.broker.admin() is None, "admin() is there, and the capabilities do not say operated"
    elif flag == "keeps_results":
        assert scene.broker.results() is None, "results() is there, and the capabilities do not say keeps_results"
    elif flag == "network":
        assert scene.can.one_process, "a site without addresses is for a broker without a network: one_process"
    elif flag == "survives_restart":
        _assert_gone(scene)
    else:
        assert getattr(scene.can, flag) is False


def _assert_gone(scene: Scene) -> None:
    """A broker that forgets with its process has forgotten everything: nothing is half there."""
    __tracebackhide__ = True
    scene.add()
    assert scene.site.kill()
    scene.site.restart()
    later = Scene(scene.site)
    later.queue = scene.queue
    later.worker().nothing(0.1)
    later.close()


def assert_refused(answer: Added, word: str) -> None:
    """Hold the broker to a clear refusal of what its capabilities say that it cannot do: it names the option."""
    __tracebackhide__ = True
    assert isinstance(answer.error, AddError), f"{word} is beyond the capabilities, and was answered {answer}"
    assert word in str(answer.error), f"the refusal does not name {word}: {answer.error}"
