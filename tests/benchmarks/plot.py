"""Draws plots with matplotlib: `python -m tests.benchmarks.plot` reads one as JSON, in an interpreter that has it.

The JSON has `path`, `title`, `x`, `y` (the axes' labels) and `lines`: label to [x, y] pairs, on a logarithmic x axis;
or `bars`: label to the value of each of `groups`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import ROOT

PYTHON = ROOT / ".venv-bench" / "bin" / "python"
"""The interpreter with the peers and matplotlib, made by the Makefile."""
COLOURS = ("#1b6ca8", "#d1495b", "#6a994e", "#8d6a9f", "#edae49")


def draw(python: Path, path: Path, **plot: Any) -> None:
    """Have that interpreter draw a plot into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-m", "tests.benchmarks.plot"]
    subprocess.run(command, input=json.dumps({"path": str(path), **plot}), cwd=ROOT, text=True, check=True)


def main() -> None:
    """Draw what is asked for."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    plot = json.load(sys.stdin)
    figure, axes = plt.subplots(figsize=(7, 3.2) if "lines" in plot else (7, 4.4), layout="constrained")
    axes.set_title(plot["title"], fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y" if "lines" in plot else "x", alpha=0.3)
    if "lines" in plot:
        _lines(axes, plot)
    else:
        _bars(axes, plot)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(plot["path"], dpi=110, metadata={"Software": None})


def _lines(axes: Any, plot: Mapping[str, Any]) -> None:
    for colour, (label, points) in zip(COLOURS, plot["lines"].items(), strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label, color=colour)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(plot["x"], fontsize=9)
    axes.set_ylabel(plot["y"], fontsize=9)


def _bars(axes: Any, plot: Mapping[str, Any]) -> None:
    groups, height = plot["groups"], 0.8 / len(plot["bars"])
    for index, (colour, (label, values)) in enumerate(zip(COLOURS, plot["bars"].items(), strict=False)):
        places = [place + index * height for place in range(len(groups))]
        bars = axes.barh(places, values, height, label=label, color=colour)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=7, padding=2)
    middle = height * (len(plot["bars"]) - 1) / 2
    axes.set_yticks([place + middle for place in range(len(groups))], groups, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel(plot["x"], fontsize=9)


if __name__ == "__main__":
    main()
