"""A report in three steps, each a job that adds the next one: `python -m reports MONTH [EDITION]`.

A step may run twice: when its worker dies behind the add and before the "done".  So the next step has a key made from
the key of its own job, which makes the second add the same job as the first.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TypeVar

from tenure import App, Job, JobFailed, Signature, current_job

R = TypeVar("R")

app = App("reports")

SALES = Path("sales")
WORK = Path("work")
REPORTS = Path("reports")


class NoSales(Exception):
    """There is nothing to report on."""


def then(step: Signature[R]) -> str:
    """Add the next step once, however often this one runs; returns its job's id."""
    return step.options(key=f"{current_job.key}/{step.task.name}").delay().id


def write(file: Path, text: str) -> None:
    """Put a file into its place as a whole, so that nobody reads half of one."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f"{file.name}.{current_job.fence}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


# What one step hands to the next is a name, not the data: the same name again is the same job, whereas other data
# under the same key is refused.


@app.task(key=lambda month, edition: f"{month}/{edition}", give_up_on=NoSales)
def collect(month: str, edition: int) -> str:
    """Read what every shop has sold, and have it added up; returns the id of the job that does."""
    rows = [row for file in sorted(SALES.glob(f"{month}-*.csv")) for row in read(file)]
    if not rows:
        raise NoSales(f"there is no {SALES}/{month}-*.csv")
    write(WORK / f"{month}-{edition}-rows.json", json.dumps(rows))
    return then(add_up.s(month, edition))


@app.task
def add_up(month: str, edition: int) -> str:
    """Add up the cents for each product; returns the id of the job that writes the report."""
    cents: Counter[str] = Counter()
    for row in json.loads((WORK / f"{month}-{edition}-rows.json").read_text(encoding="utf-8")):
        cents[row["product"]] += int(row["cents"])
    write(WORK / f"{month}-{edition}-sums.json", json.dumps(cents))
    return then(publish.s(month, edition))


@app.task
def publish(month: str, edition: int) -> str:
    """Write the report, and return its path."""
    cents = Counter(json.loads((WORK / f"{month}-{edition}-sums.json").read_text(encoding="utf-8")))
    lines = [f"{product:<10}{amount / 100:>10.2f}" for product, amount in cents.most_common()]
    report = REPORTS / f"{month}-{edition}.txt"
    write(report, "\n".join([f"Sales in {month}", "", *lines, f"{'all':<10}{cents.total() / 100:>10.2f}", ""]))
    return str(report)


def main(month: str, edition: str = "1") -> int:
    """Add the first step, and wait for one after the other; returns the exit code."""
    first = collect.delay(month, int(edition))
    print(f"{first.key}: {'a new report' if first.created else 'asked for before'}", flush=True)
    try:
        second: Job[str] = app.job(first.result(), add_up)
        third: Job[str] = app.job(second.result(), publish)
        report = third.result()
    except JobFailed as error:
        print(f"failed: {error.reason}")
        return 1
    print(Path(report).read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
