"""`make bench-peers`: Tenure beside its peers, in interleaved runs, as a table and a plot."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.benchmarks.__main__ import yardstick
from tests.benchmarks.machine import Machine, this_machine
from tests.benchmarks.pages import PERFORMANCE, PLOTS, README, measured_by, put
from tests.benchmarks.peers.contenders import CONTENDERS, Contender, here
from tests.benchmarks.peers.contest import Amounts, Run, run
from tests.benchmarks.plot import PYTHON, draw
from tests.benchmarks.processes import ROOT
from tests.benchmarks.report import markdown
from tests.benchmarks.resting import run_time

COLUMNS = (
    "",
    "added/s, one by one",
    "drained/s",
    "Tenure `normal` drains",
    "worker's CPU for 1,000",
    "latency p50 / p99",
    "idle: RSS of one process, PSS of all, CPU",
    "import",
)
MORE = {"adds": "added a second", "drains": "drained a second"}
LESS = {
    "cpu": "the worker's CPU",
    "p50": "latency p50",
    "p99": "latency p99",
    "mib": "idle RSS",
    "all_mib": "idle PSS",
    "percent": "idle CPU",
}
"""The figures of a run of which more, or less, is better."""
TIMES = 4.0
"""How many times as fast as dramatiq and huey a drain is to be."""
IMPORTS = 7
PACKAGES = ("celery", "dramatiq", "huey", "taskiq", "taskiq-redis", "redis", "pika")


def main(arguments: Sequence[str]) -> None:
    """Compare what was asked for."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.docs and (asked.only or asked.quick):
        parser.error("--docs writes a whole table: it goes with neither --only nor --quick")
    if not asked.python.exists():
        parser.error(f"there is no {asked.python}: `make bench-peers` makes it")
    contenders = [one for one in here() if one.ours or not asked.only or one.name in asked.only]
    amounts = Amounts(300, 20, 0.5) if asked.quick else Amounts(jobs=asked.jobs)
    machine = this_machine()
    runs: dict[str, list[Run]] = {one.name: [] for one in contenders}
    ps = []
    with yardstick() as p:
        for number in range(1, (1 if asked.quick else asked.rounds) + 1):
            for one in contenders:
                print(f"round {number}: {one.name}", file=sys.stderr, flush=True)
                ps.append(p.rate(10_000))
                runs[one.name].append(run(one, asked.python, amounts))
    imports = _imports(contenders, asked.python, 1 if asked.quick else IMPORTS)
    medians = {name: Run(*map(median, zip(*each, strict=True))) for name, each in runs.items()}
    how = _how(asked.python, median(ps), amounts, len(ps) // len(contenders))
    rows = [_row(one, medians, imports) for one in contenders]
    better = _better(contenders, medians, imports)
    text = "\n\n".join([measured_by("make bench-peers ARGS=--docs", machine), markdown(COLUMNS, rows), how, better])
    print(text)
    _judge(medians)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": asdict(machine),
        "p": ps,
        "runs": {name: [one._asdict() for one in each] for name, each in runs.items()},
        "imports": imports,
    }
    asked.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if asked.docs:
        _document(text, asked.python, contenders, medians, machine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of everything, to see that it runs")
    parser.add_argument("--docs", action="store_true", help="write table and plot into README.md and docs/ too")
    parser.add_argument(
        "--only",
        action="append",
        choices=[one.name for one in CONTENDERS],
        metavar="NAME",
        help="this peer only; may be given again",
    )
    parser.add_argument("--jobs", type=int, default=Amounts().jobs, help="how many a drain has (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each has its turn (default: %(default)s)")
    parser.add_argument("--python", type=Path, default=PYTHON, help="the interpreter that has the peers")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "peers.json", metavar="PATH")
    return parser


def _imports(contenders: Sequence[Contender], python: Path, times: int) -> dict[str, float]:
    """Return the milliseconds of a fresh interpreter that imports what each needs, in turn."""
    seen: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(times):
        for one in contenders:
            seen[one.name].append(run_time(sys.executable if one.ours else str(python), one.imports) * 1000)
    return {name: median(each) for name, each in seen.items()}


def _row(one: Contender, medians: Mapping[str, Run], imports: Mapping[str, float]) -> list[str]:
    its = medians[one.name]
    return [
        one.label,
        f"{its.adds:,.0f}",
        f"{its.drains:,.0f}",
        "" if one.ours else f"{medians['tenure-normal'].drains / its.drains:.1f} times as many",
        f"{its.cpu:.3f} s",
        f"{its.p50:.2f} / {its.p99:.2f} ms",
        f"{its.mib:.0f}, {its.all_mib:.0f} MiB, {its.percent:.2f} %",
        f"{imports[one.name]:.0f} ms",
    ]


def _how(python: Path, p: float, amounts: Amounts, rounds: int) -> str:
    return (
        f"{amounts.jobs:,} no-op jobs, {rounds} interleaved rounds, medians; one worker process, ten jobs at a time, "
        f"results off. P in these runs: {p:,.0f}/s. {_versions(python)}."
    )


def _better(contenders: Sequence[Contender], medians: Mapping[str, Run], imports: Mapping[str, float]) -> str:
    """Say in which figures a peer is better than Tenure at `normal`."""
    ours, lines = medians["tenure-normal"], []
    for one in contenders:
        its = medians[one.name]
        words = [words for name, words in MORE.items() if getattr(its, name) > getattr(ours, name)]
        words += [words for name, words in LESS.items() if getattr(its, name) < getattr(ours, name)]
        words += ["the import"] if imports[one.name] < imports["tenure-normal"] else []
        if words and not one.ours:
            lines.append(f"- {one.label}: {', '.join(words)}.")
    return "Where a peer is better than Tenure at `normal`:\n\n" + ("\n".join(lines) or "nowhere in these runs.")


def _versions(python: Path) -> str:
    code = f"from importlib.metadata import version; print(*[f'{{n}} {{version(n)}}' for n in {PACKAGES}], sep=', ')"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _judge(medians: Mapping[str, Run]) -> None:
    """Print whether a drain is as many times as fast as it is to be."""
    ours = medians["tenure-normal"].drains
    for name, its in medians.items():
        if name.startswith(("dramatiq", "huey")):
            word = "reached" if ours >= TIMES * its.drains else "NOT reached"
            print(f"drained {ours / its.drains:.1f} times as fast as {name}, wanted {TIMES:g}: {word}")


def _document(
    text: str, python: Path, contenders: Sequence[Contender], medians: Mapping[str, Run], machine: Machine
) -> None:
    """Write table and plot into the documentation."""
    bars = {
        "added a second, one by one": [medians[one.name].adds for one in contenders],
        "drained a second by one worker process": [medians[one.name].drains for one in contenders],
    }
    groups = [one.label.replace("`", "") for one in contenders]
    title = f"No-op jobs a second, {machine.date[:10]}, {machine.cpus} CPUs"
    draw(python, PLOTS / "peers.png", title=title, x="jobs a second", groups=groups, bars=bars)
    settings = "\n".join(f"- {one.label}: {one.settings}." for one in contenders)
    put(README, "peers", text)
    put(PERFORMANCE, "peers", f"![{title}](performance/peers.png)\n\n{text}\n\nThe settings:\n\n{settings}")


if __name__ == "__main__":
    main(sys.argv[1:])
