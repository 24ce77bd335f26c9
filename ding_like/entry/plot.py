"""`ding plot`: learning curves of several run folders in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ding_like.config.checks import Check, at_least, finite, one_of, optional, positive
from ding_like.entry.curves import AGGREGATES, LARGEST, Curve, NoDataError, Run, curve, find_runs, read_run, smoothed
from ding_like.utils.log import get_logger

X_LABELS = {"envstep": "environment steps", "train_iter": "gradient steps", "wall_time_s": "wall time in s"}
FORMATS = (".png", ".pdf", ".svg")
_NAMES = {"mean": "mean", "iqm": "interquartile mean"}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's
_DASHES = ("-", "--", ":", "-.")
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.title_fontsize": 9,
    "text.parse_math": False,  # a $ in a name is a $
}


def plot(
    folders: Sequence[str | Path],
    out: str | Path = "plot.png",
    *,
    key: str = "eval_value",
    section: str = "eval",
    x: str = "envstep",
    aggregate: str = "mean",
    ci: float = 0.95,
    labels: Sequence[str] = (),
    smooth: int = 1,
    title: str | None = None,
    target: float | None = None,
) -> Path:
    """Draw a curve a folder and return the picture's path.

    A folder of `seed_N` folders is one curve: the runs' mean or interquartile mean at each x, between the ends of a
    percentile bootstrap interval over seeds; `curves.align` tells how runs of different x come together.

    Args:
        folders: run folders, or folders of `seed_N` folders.
        out: `.png`, `.pdf` or `.svg`; missing folders are made.
        key, section: what to draw, as `metrics.jsonl` names it.
        x: 'envstep', 'train_iter' or 'wall_time_s'.
        aggregate: 'mean' or 'iqm'.
        ci: level of the interval.
        labels: names of the curves, all different; those of the folders where none are given.
        smooth: each value of a run as the mean of so many up to it; 1 leaves them.
        target: a dashed line at this height, such as a stop value.

    Raises ValueError for a folder, key or option that will not do, ImportError without matplotlib.
    """
    out, paths = Path(out), [Path(folder) for folder in folders]
    fraction = Check(lambda value: positive.fine(value) and value < 1, "a number between 0 and 1")
    height = Check(lambda value: finite.fine(value) and abs(value) <= LARGEST, f"a number up to {LARGEST:g}")
    for name, value, check in (
        ("x", x, one_of(*X_LABELS)),
        ("aggregate", aggregate, one_of(*AGGREGATES)),
        ("ci", ci, fraction),
        ("smooth", smooth, at_least(1)),
        ("target", target, optional(height)),
        ("the ending of the picture's name", out.suffix.lower(), one_of(*FORMATS)),
        ("the number of folders", len(paths), at_least(1)),
    ):
        told = check.mistake(value, name)
        if told:
            raise ValueError(told)
    if labels and len(labels) != len(paths):
        raise ValueError(f"labels: got {len(labels)} for {len(paths)} folders; give one a folder, in their order")
    names = list(labels) or _labels(paths)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two curves are called {twice!r}; give each folder once, and each a label of its own")
    figure_class = _figure_class()
    curves = []
    for path in paths:
        runs = [smoothed(run, smooth) for run in _runs(path, key, section, x)]
        curves.append(curve(runs, aggregate, ci))
    y_label = "mean return of an evaluation" if (section, key) == ("eval", "eval_value") else f"{key} ({section})"
    legend = f"{_NAMES[aggregate]} and {100 * ci:g} % interval over seeds" if any(c.runs > 1 for c in curves) else None
    figure = _draw(figure_class, dict(zip(names, curves, strict=True)), legend, target)
    figure.axes[0].set(xlabel=X_LABELS[x], ylabel=y_label, title=title or "")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=160)
    return out


def _runs(folder: Path, key: str, section: str, x: str) -> list[Run]:
    """The runs of one curve; a seed that has logged nothing yet is left out, unless all have not."""
    runs, empty = [], []
    for path in find_runs(folder):
        try:
            runs.append(read_run(path, key, section, x))
        except NoDataError as error:
            empty.append(error)
    if not runs:
        raise empty[0]
    for reason in empty:
        get_logger().info(f"left out: {reason}")
    return runs


def _labels(folders: Sequence[Path]) -> list[str]:
    """The names of the folders; their whole paths where two have one name."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _figure_class() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import, and optional
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("ding plot needs the package matplotlib: pip install 'ding_like[plot]'") from error

    def make(**options: Any) -> Any:
        figure = Figure(**options)
        FigureCanvasAgg(figure)
        return figure

    return make


def _draw(make: Any, curves: dict[str, Curve], legend: str | None, target: float | None) -> Any:
    from matplotlib import rc_context
    from matplotlib.ticker import EngFormatter

    with rc_context(_STYLE):
        figure = make(figsize=(6.4, 3.8), layout="constrained")
        axes, names = figure.subplots(), []
        for number, (label, line) in enumerate(curves.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
            names.append(f"{label} ({line.runs} seeds)" if line.runs > 1 else label)
            marker = "o" if len(line.x) == 1 else ""
            axes.plot(line.x, line.y, color=colour, linestyle=dash, marker=marker, linewidth=1.8)
            if line.low is not None:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        if target is not None:
            axes.axhline(target, color="0.4", linestyle=(0, (4, 3)), linewidth=1)
            names.append(f"target {target:g}")
        axes.margins(x=0.02)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        # by handles: matplotlib leaves out lines whose label starts with _
        axes.legend(axes.get_lines(), names, title=legend, alignment="left")
    return figure
