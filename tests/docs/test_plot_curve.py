"""benchmarks/plot_curve.py, which makes the README's picture."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "plot_curve.py"


@pytest.fixture(scope="module")
def plot_curve():
    spec = importlib.util.spec_from_file_location("plot_curve", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder, *rows):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_only_evaluations_are_read(plot_curve, tmp_path):
    write(
        tmp_path / "run",
        dict(section="eval", envstep=0, eval_value=9.0),
        dict(section="learner", envstep=50, total_loss=1.0),
        dict(section="eval", envstep=100, eval_value=20.0),
    )
    steps, values = plot_curve.evaluations(tmp_path / "run")
    assert steps.tolist() == [0, 100]
    assert values.tolist() == [9.0, 20.0]


def test_a_run_without_evaluations_is_named(plot_curve, tmp_path):
    write(tmp_path / "run", dict(section="learner", envstep=50, total_loss=1.0))
    with pytest.raises(ValueError, match=r"run: metrics\.jsonl has no evaluation"):
        plot_curve.evaluations(tmp_path / "run")


def test_the_median_counts_a_stopped_run_with_its_last_value(plot_curve):
    curves = [
        (np.array([0, 10]), np.array([0.0, 100.0])),
        (np.array([0, 10, 20]), np.array([2.0, 4.0, 6.0])),
        (np.array([0, 20]), np.array([1.0, 50.0])),
    ]
    grid, median = plot_curve.median_curve(curves)
    assert grid.tolist() == [0, 10, 20]
    assert median.tolist() == [1.0, 4.0, 50.0]


@pytest.mark.system
def test_a_picture_is_written(plot_curve, tmp_path):
    curve = (np.array([0, 10]), np.array([0.0, 100.0]))
    plot_curve.draw([curve, curve], tmp_path / "new" / "curve.png", "title", 90)
    assert (tmp_path / "new" / "curve.png").read_bytes().startswith(b"\x89PNG")
