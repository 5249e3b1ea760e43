"""Names of every kind, and apps whose tasks live in modules of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenure import App
from tests.stage.harness import Stage, wait_for

NAMES = [
    "a", "a:b", "x#y", "x/y", " ", "a b", "%41", "=,;|\\'\"", "n" * 300, "\N{PARTY POPPER}",
    "\N{CJK UNIFIED IDEOGRAPH-4ED5}\N{CJK UNIFIED IDEOGRAPH-4E8B}",
]  # fmt: skip

ODD = f"""
from tenure import App
from tests.stage.marks import marked

app = App("odd")


def work(text):
    with marked():
        return text


for name in {NAMES!r}:
    app.task(name=name, queue=name)(work)
"""


def test_whatever_may_be_a_name_is_one_for_tasks_queues_and_keys(bare: Stage) -> None:
    (bare.place / "odd.py").write_text(ODD, encoding="utf-8")
    bare.start_server()
    caller = App("caller")
    bare.use(caller)
    bare.start_worker("w", "--processes", "1", app="odd")
    added = [caller.send(name, [name], queue=name, key=name) for name in NAMES]
    added += [caller.send("a", ["1"], queue="a", key="b:c"), caller.send("a:b", ["2"], queue="a:b", key="c")]
    assert all(job.created for job in added)
    assert [job.result(timeout=20) for job in added] == [*NAMES, "1", "2"]
    assert [bare.ask("job", job.id)["key"] for job in added] == [*NAMES, "b:c", "c"]
    assert {row["name"] for row in bare.ask("queues")} == set(NAMES)
    bare.run("queues", "--broker", bare.url)
    record = bare.check(caller.counts)
    assert set(record["queues"]) == set(NAMES)


SHOP = {
    "app.py": 'from tenure import App\n\napp = App("shop", include=["shop.mail", "shop.billing"])\n',
    "mail.py": "from shop.app import app\nfrom shop.billing import charge\n\n\n"
    "@app.task\ndef receipt(order: int) -> str:\n    return f'receipt {order}'\n",
    "billing.py": "from shop.app import app\n\n\n"
    "@app.task\ndef charge(order: int) -> str:\n    from shop.mail import receipt\n\n"
    "    receipt.options(key=f'{order}').delay(order)\n    return f'charged {order}'\n",
    "web.py": "from shop.billing import charge\n\nprint(charge.delay(42).result(timeout=20))\n",
}


@pytest.fixture
def shop(bare: Stage) -> Stage:
    """The layout that docs/howto/organise-tasks.md shows, in which tasks of two modules add each other's jobs."""
    (bare.place / "shop").mkdir()
    for name, text in SHOP.items():
        (bare.place / "shop" / name).write_text(text)
    return bare


def test_an_app_and_its_tasks_in_modules_that_need_each_other(shop: Stage) -> None:
    shop.start_server()
    worker = shop.start_worker("w", "--processes", "1", app="shop.app")
    assert "tasks shop.billing.charge, shop.mail.receipt" in worker.output
    web = subprocess.run(
        [sys.executable, "-m", "shop.web"],
        cwd=shop.place,
        env={**shop.env, "TENURE_BROKER": shop.url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (web.returncode, web.stdout) == (0, "charged 42\n"), web.stderr
    wait_for(lambda: shop.totals()["done"] == 2, 10, "both jobs are done")


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("from shop.app import app\n\ndef broken(:\n", "line 3", "SyntaxError"),
        ("import no_such_module\n", "line 1", "No module named 'no_such_module'"),
        ("from shop.app import app\nfrom shop.billing import chargee\n", "line 2", "cannot import name 'chargee'"),
    ],
    ids=["syntax", "missing", "circular"],
)
def test_an_error_in_an_included_module_ends_the_worker_with_its_place(
    shop: Stage, text: str, line: str, error: str
) -> None:
    (shop.place / "shop" / "mail.py").write_text(text)
    failed = shop.run("worker", "-A", "shop.app", code=1)
    assert "mail.py" in failed.stderr
    assert line in failed.stderr
    assert error in failed.stderr
    assert failed.stderr.count(error) == 1
