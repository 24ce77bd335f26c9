"""`ding plot`: what is read of a run folder, how seeds come together, intervals, and the picture."""

import json
import logging
import sys
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.entry import cli
from ding_like.entry.curves import (
    MAX_POINTS,
    NoDataError,
    Run,
    align,
    bootstrap,
    curve,
    find_runs,
    iqm,
    mean,
    read_run,
    smoothed,
)
from ding_like.entry.plot import _draw, _figure_class, _labels, _runs, plot


def write(folder, rows, stop=None, tail=""):
    """A run folder with these records; `stop` writes its result."""
    folder.mkdir(parents=True)
    lines = [json.dumps(dict(dict(section="eval", train_iter=0, wall_time_s=0.5), **row)) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines) + tail)
    if stop is not None:
        (folder / "result.json").write_text(json.dumps({"stop": stop}))
    return folder


def evaluations(*points):
    return [dict(envstep=x, eval_value=y) for x, y in points]


def made(xs, ys, solved=False, folder="run"):
    return Run(folder, np.array(xs, float), np.array(ys, float), solved)


@pytest.fixture(autouse=True)
def _said(caplog):
    caplog.set_level(logging.INFO)


# ------------------------------------------------------------------ reading
def test_the_values_of_a_key_are_read_at_their_x(tmp_path):
    rows = [
        dict(envstep=0, eval_value=9.0),
        dict(section="learner", envstep=50, train_iter=5, total_loss=1.0, eval_value=77.0),
        dict(envstep=100, eval_value=20, wall_time_s=1.5),
    ]
    folder = write(tmp_path / "run", rows, stop=True)
    run = read_run(folder)
    assert (run.x.tolist(), run.y.tolist(), run.solved) == ([0, 100], [9, 20], True)
    run = read_run(folder, "total_loss", "learner", "train_iter")
    assert (run.x.tolist(), run.y.tolist()) == ([5], [1])
    assert read_run(folder, x="wall_time_s").x.tolist() == [0.5, 1.5]


def test_of_several_values_at_one_x_the_last_counts(tmp_path):
    folder = write(tmp_path / "run", evaluations((0, 1), (8, 2), (8, 3), (16, 4)))
    run = read_run(folder)
    assert (run.x.tolist(), run.y.tolist(), run.solved) == ([0, 8, 16], [1, 3, 4], False)


def test_null_values_are_left_out_and_said(tmp_path, caplog):
    folder = write(tmp_path / "run", evaluations((0, 1), (8, None), (16, float("nan")), (None, 2), (24, 4)))
    assert read_run(folder).x.tolist() == [0, 24]
    assert "3 records whose 'eval_value' or 'envstep' is null or beyond 1e+300 are left out" in caplog.text
    assert "the first in line 2" in caplog.text


@pytest.mark.parametrize("value", [1e308, -1e308, 10**400])
def test_values_whose_sums_overflow_are_left_out_and_said(tmp_path, caplog, value):
    folder = write(tmp_path / "run", evaluations((0, 1), (8, value), (value, 2), (24, 4)))
    assert read_run(folder).x.tolist() == [0, 24]
    assert "2 records whose" in caplog.text


@pytest.mark.parametrize("text", ["{", "[1]", "3", "", "\x00"])
def test_a_broken_result_counts_as_no_stop_value_and_is_said(tmp_path, caplog, text):
    folder = write(tmp_path / "run", evaluations((0, 1)), stop=True)
    assert read_run(folder).solved
    (folder / "result.json").write_text(text)
    assert not read_run(folder).solved
    assert "result.json is broken" in caplog.text


@pytest.mark.parametrize("tail", ['{"section": "ev', '{"section": "eval", "envstep": 24, "eval_value": 4', "\x00\x00"])
def test_a_last_line_that_is_not_whole_is_left_out_and_said(tmp_path, caplog, tail):
    folder = write(tmp_path / "run", evaluations((0, 1), (8, 2)), tail=tail)
    assert read_run(folder).x.tolist() == [0, 8]
    assert "metrics.jsonl: the last line is not whole" in caplog.text


@pytest.mark.parametrize("line", ['{"section": "ev', "3", "[1]", "null", "9" * 5000])
def test_a_broken_line_amid_others_is_named(tmp_path, line):
    folder = write(tmp_path / "run", evaluations((0, 1)), tail=line + '\n{"section": "eval"}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: .*; remove the line"):
        read_run(folder)


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        ([], {}, NoDataError, "has no record of section 'eval'; it has none at all yet"),
        ([dict(section="learner", envstep=1, a=1)], {}, NoDataError, "section 'eval'; it has learner"),
        (
            evaluations((0, 1)),
            dict(key="eval_vale"),
            ValueError,
            r"no 'eval_vale'\. Did you mean 'eval_value'\? It has",
        ),
        (
            evaluations((0, None)),
            {},
            NoDataError,
            "'eval_value' of section 'eval' is null, or its 'envstep' is, in every",
        ),
        ([dict(envstep=0, name="a")], dict(key="name"), ValueError, r"jsonl, line 1: 'name' is 'a', which cannot"),
        (evaluations((0, 1), (1, [2])), {}, ValueError, r"jsonl, line 2: 'eval_value' is \[2\], which cannot be drawn"),
        (evaluations((0, 1), ("1", 2)), {}, ValueError, r"jsonl, line 2: 'envstep' is '1', which cannot be drawn"),
        ([dict(eval_value=1)], {}, ValueError, r"section 'eval' has no 'envstep'\. It has: .*eval_value"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, rows, options, error, message):
    with pytest.raises(error, match=message):
        read_run(write(tmp_path / "run", rows), **options)


# ------------------------------------------------------------------ folders
def test_a_folder_of_seeds_is_one_curve_in_the_order_of_seeds(tmp_path, caplog):
    for name in ("seed_10", "seed_9", "seed_9_1", "other"):
        write(tmp_path / "exp" / name, evaluations((0, 1)))
    (tmp_path / "exp" / "seed_11").mkdir()  # nothing in it
    assert [path.name for path in find_runs(tmp_path / "exp")] == ["seed_9", "seed_10"]
    assert "left out, as they are not named seed_N: seed_9_1" in caplog.text
    assert find_runs(tmp_path / "exp" / "other") == [tmp_path / "exp" / "other"]


def test_folders_without_runs_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is no run folder \(no metrics\.jsonl in it\) and has no seed_N folders$"):
        find_runs(tmp_path)
    write(tmp_path / "a", [])
    with pytest.raises(ValueError, match=r"has no seed_N folders; give those in it that are meant: a$"):
        find_runs(tmp_path)


def test_a_seed_that_has_logged_nothing_yet_is_left_out_unless_all_have_not(tmp_path, caplog):
    write(tmp_path / "seed_0", evaluations((0, 1)))
    write(tmp_path / "seed_1", [])
    assert len(_runs(tmp_path, "eval_value", "eval", "envstep")) == 1
    assert "left out: " in caplog.text and "seed_1" in caplog.text
    with pytest.raises(NoDataError, match="seed_1"):
        _runs(tmp_path / "seed_1", "eval_value", "eval", "envstep")


def test_two_folders_of_one_name_go_by_their_paths(tmp_path):
    assert _labels([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert _labels([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == [f"{tmp_path}/{name}/run" for name in "ab"]


# ------------------------------------------------------------------ runs on one grid
def test_a_run_has_its_last_value_at_every_x_of_any_run():
    x, values = align([made([0, 10, 20], [1, 2, 3]), made([0, 4, 20], [5, 6, 7])])
    assert x.tolist() == [0, 4, 10, 20]
    assert values.tolist() == [[1, 1, 2, 3], [5, 6, 6, 7]]


def test_nothing_is_extrapolated_but_a_run_that_reached_its_stop_value_holds_it():
    open_, solved = made([5, 15, 30], [1, 2, 3]), made([0, 10], [5, 6], solved=True)
    x, values = align([open_, solved])
    assert x.tolist() == [5, 10, 15, 30]
    assert values.tolist() == [[1, 1, 2, 3], [5, 6, 6, 6]]
    x, values = align([open_, made([0, 10], [5, 6])])
    assert x.tolist() == [5, 10]
    assert values.tolist() == [[1, 1], [5, 6]]


def test_where_a_run_without_its_stop_value_ends_early_the_curve_ends_and_that_is_said(caplog):
    long = made([0, 1000], [1, 2])
    align([long, made([0, 990], [1, 2], folder="about the same")])
    assert caplog.text == ""
    align([long, made([0, 300], [1, 2], folder="killed")])
    assert "killed ends at 300 without having reached its stop value; the curve ends there" in caplog.text


def test_when_all_reached_it_the_curve_goes_on_to_the_last():
    x, values = align([made([0, 10], [1, 2], True), made([0, 30], [3, 4], True)])
    assert (x.tolist(), values.tolist()) == ([0, 10, 30], [[1, 2, 2], [3, 3, 4]])


def test_runs_without_a_common_x_are_named():
    with pytest.raises(ValueError, match="early ends at 10, before another run starts"):
        align([made([0, 10], [1, 2], folder="early"), made([20, 30], [1, 2])])


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    xs = np.arange(5000)
    x, values = align([made(xs, xs), made(xs, -xs)])
    assert (len(x), x[0], x[-1]) == (MAX_POINTS, 0, 4999)
    assert (values[0] == np.floor(x)).all() and (values[1] == -np.floor(x)).all()


# ------------------------------------------------------------------ statistics
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.integers(1, 6))
def test_smoothing_is_the_mean_of_the_values_up_to_each(values, count):
    wanted = [sum(values[max(0, i - count + 1) : i + 1]) / min(count, i + 1) for i in range(len(values))]
    assert smoothed(made(range(len(values)), values), count).y == pytest.approx(wanted, abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=13))
def test_the_interquartile_mean_drops_a_quarter_of_the_values_at_each_end(values):
    middle = list(values)
    for _ in range(len(values) // 4):
        middle.remove(min(middle))
        middle.remove(max(middle))
    assert iqm(np.array(values)) == pytest.approx(sum(middle) / len(middle), abs=1e-9)


def test_an_outlier_moves_the_mean_and_not_the_interquartile_mean():
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [1000.0, 40.0]])
    assert iqm(values).tolist() == [2.5, 25.0]
    assert mean(values).tolist() == [251.5, 25.0]


def quantile_of(outcomes, share):
    """The value below which lies that share of the probability of `outcomes`, pairs (value, probability)."""
    total = 0.0
    for value, probability in sorted(outcomes):
        total += probability
        if total >= share - 1e-12:
            return value
    raise AssertionError


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_the_interval_is_that_of_all_possible_resamples(statistic):
    """By enumeration: every multiset of S runs with its multinomial probability. The ends are drawn from 2,000."""
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    outcomes = []
    for pick in combinations_with_replacement(range(5), 5):
        ways = factorial(5) / prod(factorial(pick.count(i)) for i in range(5))
        outcomes.append((float(statistic(values[list(pick)])), ways / 5**5))
    low, high = bootstrap(values[:, None], statistic, 0.8)
    for end, share in ((low[0], 0.1), (high[0], 0.9)):
        slack = 4 * (share * (1 - share) / 2000) ** 0.5
        assert quantile_of(outcomes, share - slack) <= end <= quantile_of(outcomes, share + slack)


def test_an_interval_is_the_same_each_time_and_whole_runs_are_resampled():
    values = np.random.default_rng(1).normal(size=(6, 150)) + np.arange(6)[:, None]
    low, high = bootstrap(values, mean, 0.9)
    again = bootstrap(values, mean, 0.9)
    assert (low == again[0]).all() and (high == again[1]).all()
    assert (low < values.mean(0)).all() and (values.mean(0) < high).all()
    same = bootstrap(np.repeat(values[:, :1], 150, 1), mean, 0.9)  # one resample for all points of a curve
    assert len(set(same[0].tolist())) == 1
    wide = bootstrap(values, mean, 0.99)
    assert (wide[0] <= low).all() and (high <= wide[1]).all()


def test_runs_that_agree_have_an_interval_of_no_width():
    line = curve([made([0, 10], [3, 4])] * 3)
    assert line.y.tolist() == line.low.tolist() == line.high.tolist() == [3, 4]
    alone = curve([made([0, 10], [3, 4])])
    assert (alone.low, alone.high, alone.runs) == (None, None, 1)


# ------------------------------------------------------------------ the picture
@pytest.mark.system
def test_the_lines_of_the_picture_are_the_curves():
    pytest.importorskip("matplotlib")
    curves = {"_$a$": curve([made([0, 10], [1, 2]), made([0, 10], [3, 6])]), "b": curve([made([5], [7])])}
    (axes,) = _draw(_figure_class(), curves, "mean", 4.0).axes
    a, b, target = axes.get_lines()
    assert (a.get_xdata().tolist(), a.get_ydata().tolist()) == ([0, 10], [2, 4])
    assert (b.get_ydata().tolist(), b.get_marker(), a.get_marker()) == ([7], "o", "")  # one point is seen
    assert set(target.get_ydata()) == {4.0} and len(axes.collections) == 1
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["_$a$ (2 seeds)", "b", "target 4"]
    assert not any(text.get_parse_math() for text in (axes.title, axes.yaxis.label, *axes.get_legend().get_texts()))


@pytest.mark.system
@pytest.mark.parametrize("name", ["new/curve.PNG", "curve.pdf", "curve.svg"])
def test_the_command_writes_a_picture_and_tells_its_path(tmp_path, monkeypatch, capsys, name):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        write(tmp_path / "exp" / f"seed_{seed}", evaluations((0, seed), (100, 20 + seed)))
    write(tmp_path / "alone", evaluations((0, 1), (50, 9)))
    argv = ["plot", "exp", "alone", "-o", name, "--aggregate", "iqm", "--ci", "0.9", "--smooth", "2"]
    assert cli.main([*argv, "--label", "A", "--label", "B", "--title", "$T", "--target", "20"]) == 0
    assert capsys.readouterr().out == f"{name}\n"
    assert (tmp_path / name).read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<?xm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(x="step"), "x: got 'step', wanted one of 'envstep'"),
        (dict(aggregate="median"), "aggregate: got 'median', wanted one of 'mean', 'iqm'"),
        (dict(ci=95), "ci: got 95, wanted a number between 0 and 1"),
        (dict(ci="x"), "ci: got 'x', wanted a number between 0 and 1"),
        (dict(target="3"), r"target: got '3', wanted a number up to 1e\+300, or None"),
        (dict(target=1.5e308), "target: got 1.5e"),
        (dict(smooth=0), "smooth: got 0, wanted an integer of at least 1"),
        (dict(out="a.jpg"), "the ending of the picture's name: got '.jpg'"),
        (dict(labels=["a", "b"]), "labels: got 2 for 1 folders"),
    ],
)
def test_wrong_options_are_named_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        plot(["nowhere"], **options)
    with pytest.raises(ValueError, match="the number of folders: got 0"):
        plot([])


@pytest.mark.parametrize(
    ("folders", "labels", "message"),
    [
        (["a", "b"], ["x", "x"], "two curves are called 'x'; give each folder once, and each a label of its own"),
        (["a", "./a"], [], "two curves are called 'a'"),
    ],
)
def test_curves_of_one_name_are_refused_and_not_merged(folders, labels, message, in_tmp):
    with pytest.raises(ValueError, match=message):
        plot(folders, labels=labels)


def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path, monkeypatch, capsys):
    write(tmp_path / "run", evaluations((0, 1)))
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["plot", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.strip() == (
        "Error: ding plot needs the package matplotlib: pip install 'ding_like[plot]'"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "Error: there is no folder nowhere"),
        (["nowhere", "--ci", "x"], "'x' is not a valid float"),
        (["nowhere", "--x", "step"], "'step' is not one of 'envstep', 'train_iter', 'wall_time_s'"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(argv, message, capsys, in_tmp):
    pytest.importorskip("matplotlib")
    assert cli.main(["plot", *argv]) != 0
    assert message in capsys.readouterr().err
