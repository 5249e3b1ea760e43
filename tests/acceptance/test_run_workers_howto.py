"""The commands of docs/howto/run-workers.md, on its own app."""

from __future__ import annotations

import re
import shlex
import sys

from tenure.inspection import inspect
from tests.stage.harness import TENURE, Stage, wait_for
from tests.stage.pages import blocks

PAGE = "run-workers.md"
ADD = "import shop, sys; shop.app.use_broker(sys.argv[1]); print(shop.thumbnails.delay(int(sys.argv[2])).id)"


def add(stage: Stage, count: int) -> str:
    """Add a job in another process, for the page's module is in the folder of the test."""
    running = stage.start([sys.executable, "-c", ADD, stage.url, str(count)], stage.place / f"add-{count}.log")
    assert running.wait() == 0, running.output
    return running.output.strip()


def test_the_page_is_right(bare: Stage) -> None:
    (source,) = blocks(PAGE)
    start, ask = blocks(PAGE, "console")
    (bare.place / "shop.py").write_text(source)
    bare.env["PYTHONPATH"] += f":{bare.place}"
    bare.start_server()
    bare.env["TENURE_BROKER"] = bare.url
    words = shlex.split(start.removeprefix("$ tenure ").replace("127.0.0.1:7334", "127.0.0.1:0"))
    worker = bare.start([str(TENURE), *words], bare.place / "worker.log")
    wait_for(lambda: "2 processes of 8 slots" in worker.output, 15, "the worker has started")
    address = re.findall(r"health on http://([\d.:]+)/live", worker.output)[0]
    command, answer = ask.removeprefix("$ tenure ").splitlines()
    wait_for(lambda: bare.run("health", address, code=None).returncode == 0, 10, "it is ready")
    assert bare.run(*command.replace("127.0.0.1:7334", address).split()).stdout.strip() == answer
    assert bare.run("health", address, "--live").stdout == "live\n"
    short, long = add(bare, 5), add(bare, 1_000_000)
    with inspect(bare.url) as inspection:
        wait_for(lambda: inspection.job(short)["state"] == "done", 10, "the short job is done")
        wait_for(lambda: inspection.job(long)["state"] == "running", 10, "the long job runs")
        assert worker.stop() == 0, "the long job looks at `stopping`"
        assert inspection.job(long)["state"] == "done"
    assert bare.run("health", address, code=1).stdout.startswith("not ready: no worker answers")
