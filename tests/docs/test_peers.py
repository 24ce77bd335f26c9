"""benchmarks/peers/run.py: what is run in which order, what is told, and the ratios of its tables."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"
WORKS = "import sys; print('RESULT {\"sps\": ' + sys.argv[1] + '}')"
FAILS = "import sys; print('much output'); sys.exit('ImportError: no such peer')"


@pytest.fixture
def peers(monkeypatch):
    """The modules of the folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("run", "interleave", "summarize")
    yield [__import__(name) for name in names]
    for name in names:
        del sys.modules[name]


def write_cells(folder, *lines):
    (folder / "works.py").write_text(WORKS)
    (folder / "fails.py").write_text(FAILS)
    (folder / "cells.txt").write_text("# a comment\n" + "\n".join(lines) + "\n")
    return folder / "cells.txt"


def row(label, round_, **values):
    return dict(label=label, round=round_, foreign_cores=0.1, **values)


def test_every_side_of_a_group_begins_once(peers, tmp_path):
    cells = peers[1].read_cells(write_cells(tmp_path, *(f"{x} | base | works.py 1" for x in ("a/x", "a/y", "b/z"))))
    orders = [[cell.label for cell in peers[1].rotated(cells, round_)] for round_ in range(2)]
    assert orders == [["a/x", "a/y", "b/z"], ["a/y", "a/x", "b/z"]]


@pytest.mark.parametrize("line", ["a/x | base", "nogroup | base | works.py"])
def test_a_line_that_is_no_cell_is_named(line, peers, tmp_path):
    with pytest.raises(ValueError, match=r"cells\.txt:2: got .*wanted 'group/side"):
        peers[1].read_cells(write_cells(tmp_path, line))


def test_the_ratio_is_taken_inside_each_round(peers):
    """The machine is half as fast in round 1: each ratio is 2 all the same, that of the medians would not be."""
    ours = [row("dqn/ding_like", r, sps=v) for r, v in ((0, 400.0), (1, 200.0), (2, 440.0))]
    theirs = [row("dqn/sb3", r, sps=v) for r, v in ((2, 220.0), (0, 200.0), (1, 100.0))]
    table = peers[2].tables(theirs + ours).splitlines()
    assert table[2] == "| ding_like | 400 | 200..440 | 3 |  |"
    assert table[3] == "| sb3 | 200 | 100..220 | 3 | 2.00, 2.00..2.00 |"


def test_a_run_that_did_not_get_there_counts_with_the_seconds_it_spent(peers):
    solve = dict(seconds=None, steps=1000, opt_steps=10)
    rows = [row("t/ding_like", 0, spent=5.0, solved=True, **solve), row("t/sb3", 0, spent=50.0, solved=False, **solve)]
    table = peers[2].tables(rows).splitlines()
    assert table[3] == "| sb3 | 50 | 50..50 | 1 | 0 of 1 | 1,000 | 10 | 0.10, 0.10..0.10 |"


@pytest.mark.system
def test_a_missing_peer_is_told_a_failing_one_too_and_the_others_are_measured(tmp_path):
    cells = write_cells(
        tmp_path,
        f"g/ding_like | base | {tmp_path}/works.py 300",
        f"g/slow | base | {tmp_path}/works.py 100",
        f"g/broken | base | {tmp_path}/fails.py",
        f"g/absent | nowhere | {tmp_path}/works.py 1",
    )
    argv = [FOLDER / "run.py", "--cells", cells, "--venvs", tmp_path, "--rounds", "2", "--out", tmp_path / "out.jsonl"]
    done = subprocess.run([sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert f"left out: no environment 'nowhere' in {tmp_path}" in done.stdout
    assert "round 0 g/broken: FAILED: ImportError: no such peer" in done.stdout
    assert "| slow | 100 | 100..100 | 2 | 3.00, 3.00..3.00 |" in done.stdout
    assert "| broken | failed: ImportError: no such peer |" in done.stdout
    argv = [FOLDER / "run.py", "--report", tmp_path / "out.jsonl"]
    again = subprocess.run([sys.executable, *map(str, argv)], capture_output=True, text=True, timeout=60)
    assert again.stdout.strip() == done.stdout[done.stdout.index("| `g`") :].strip()
