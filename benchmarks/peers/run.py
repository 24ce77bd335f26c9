"""Run ours and every installed peer on the same work in turn, and print medians and paired ratios.

    python benchmarks/peers/run.py --venvs FOLDER [--cells cells_issue.txt] [--rounds 5] [--only dqn/] [--out FILE]
    python benchmarks/peers/run.py --report FILE        only the tables of results that are there already

A round runs every cell once; the order within a group moves on by one every round. Ratios are taken inside a round, so
that a slow spell of the machine slows both sides. A peer without environment is told and left out; a run that fails is
told with its last lines. Tables are Markdown.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from interleave import HERE, python_of, read_cells, rotated, run_cell
from summarize import METRICS, load, number, tables


def parse(argv):
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--venvs", default=os.environ.get("PEER_VENVS"), help="folder of virtual environments ($PEER_VENVS)"
    )
    base = os.environ.get("PEER_BASE", sys.executable)
    parser.add_argument("--base", default=base, help="python of the cells 'base' ($PEER_BASE, else this one)")
    parser.add_argument("--cells", default="cells_issue.txt", help="file of cells, here or beside this script")
    parser.add_argument("--only", default="", help="cells whose label starts so")
    parser.add_argument("--sides", default="", help="of those, the ones of these sides: ding_like,sb3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=240, help="seconds of one cell (default 240)")
    parser.add_argument("--out", default="results.jsonl", help="results are appended here as JSON lines")
    parser.add_argument(
        "--cpu", action="store_true", help="tables of CPU seconds (a machine that is shared), where known"
    )
    parser.add_argument("--report", help="print the tables of this results file and run nothing")
    return parser.parse_args(argv)


def installed(cells, venvs, base):
    """Pairs (cell, its python) of the cells that can run; tells which environments are missing."""
    found = [(cell, python_of(cell, venvs, base)) for cell in cells]
    for venv in sorted({cell.venv for cell, python in found if python is None}):
        where = f"in {venvs}" if venvs else "(no --venvs given)"
        print(f"left out: no environment '{venv}' {where}; README.md says how to install it", flush=True)
    return [(cell, python) for cell, python in found if python is not None]


def tell(row):
    """One line about one result."""
    if "error" in row:
        text = "FAILED: " + row["error"].replace("\n", "\n    ")
    else:
        text = ", ".join(f"{key} {number(row[key])}" for key in METRICS if row.get(key) is not None) or "no metric"
        text += "" if row.get("solved", True) else " not solved"
    print(f"round {row['round']} {row['label']}: {text} ({row['wall_cmd']:.0f} s)", flush=True)


def main(argv=None):
    """The command. Returns the exit code: 1 where a run failed."""
    args = parse(argv)
    if args.report:
        print(tables(load(args.report), args.cpu))
        return 0
    path = Path(args.cells) if Path(args.cells).exists() else HERE / args.cells
    cells = read_cells(path, args.only, [side for side in args.sides.split(",") if side])
    python = dict(installed(cells, args.venvs, args.base))
    results = []
    with open(args.out, "a", encoding="utf-8") as out:
        for round_ in range(args.rounds):
            for cell in rotated(list(python), round_):
                rows = run_cell(cell, round_, python[cell], args.timeout)
                results += rows
                out.writelines(json.dumps(row) + "\n" for row in rows)
                out.flush()
                for row in rows:
                    tell(row)
    print("\n" + tables(results, args.cpu))
    return int(any("error" in row for row in results))


if __name__ == "__main__":
    sys.exit(main())
