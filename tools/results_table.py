#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results_table.py - rows of bench/gpu_baselines.py as a table in Markdown.

    results_table.py docs/results/DATE-GPU.json [--only G1,M1] [--short]
    results_table.py --update README.md     # writes the tables of a page anew
    results_table.py --check README.md      # 1 if one is not that of its rows

In a page a table stands between two lines,
    <!-- table: docs/results/DATE-GPU.json G1,M1 short -->
    <!-- /table -->
The file is relative to the page.  Without names the table has all rows.
"short" keeps of each row the fastest baseline of 16 bits and of FP8."""

import argparse
import json
import os
import re
import sys

BLOCK = re.compile(r"(<!-- table: (\S+)(?: (\S+?))??( short)? -->\n)(.*?)"
                   r"(<!-- /table -->\n)", re.DOTALL)


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    wrong = [r for r in rows if r.get("ok") is False]
    if wrong:
        sys.exit(f"{path}: {wrong[0]['op']} {wrong[0]['shape']}: the result is "
                 "wrong, so no table is made")
    return [r for r in rows if r["op"] != "peak"]


def is_baseline(row):
    return row["backend"].startswith("baseline:")


def product(row):
    """What was multiplied; A is NVFP4 unless it says otherwise."""
    kind = row.get("activations") or "nvfp4"
    return (f"{row['op']} {row['shape']}"
            + ("" if kind == "nvfp4" else f", A of {kind}"))


def us(row):
    return f"{row['time_s'] * 1e6:.1f} us"


def beside(row, other):
    """A baseline's time, and how many times as fast row is."""
    return f"{us(other)}, {other['time_s'] / row['time_s']:.2f}x"


def all_baselines(rows):
    """The head of a column for each baseline, and what a row has there."""
    names = list(dict.fromkeys(r["backend"] for r in rows if is_baseline(r)))
    times = {(r["op"], r["shape"], r["backend"]): r for r in rows}

    def cells(row):
        for name in names:
            other = times.get((row["op"], row["shape"], name))
            yield beside(row, other) if other else ""
    return [name[9:] for name in names], cells


def fastest_baselines(rows):
    """The same with one column for 16 bits and one for FP8."""
    def cells(row):
        for fp8 in (False, True):
            others = [r for r in rows if is_baseline(r)
                      and (r["op"], r["shape"]) == (row["op"], row["shape"])
                      and ("fp8" in r["backend"]) == fp8]
            best = min(others, key=lambda r: r["time_s"], default=None)
            yield (f"{best['backend'][9:]}: {beside(row, best)}" if best
                   else "")
    return ["fastest 16-bit baseline", "fastest FP8 baseline"], cells


def table(path, only=None, short=False):
    """only: names of rows, or None."""
    names = only.split(",") if only else None
    rows = [r for r in read_rows(path) if r.get("time_s")
            and (names is None or r.get("name") in names)]
    heads, cells = (fastest_baselines if short else all_baselines)(rows)
    lines = [["product", "nibblas", "of limit"] + heads,
             ["---"] * (3 + len(heads))]
    for row in rows:
        if not is_baseline(row):
            lines.append([product(row), us(row),
                          f"{row['fraction_of_limit'] * 100:.0f} %",
                          *cells(row)])
    return "".join("|" + "|".join(x if x == "---" else f" {x} " if x else " "
                                  for x in line) + "|\n" for line in lines)


def rewritten(page):
    folder = os.path.dirname(os.path.abspath(page))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    return text, BLOCK.sub(
        lambda m: m[1] + table(os.path.join(folder, m[2]), m[3], m[4]) + m[6],
        text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", help="rows, or with an option a page")
    parser.add_argument("--only", metavar="NAMES")
    parser.add_argument("--short", action="store_true")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--update", action="store_true")
    action.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.update and not args.check:
        sys.stdout.write(table(args.file, args.only, args.short))
        return 0
    text, new = rewritten(args.file)
    if args.check and text != new:
        print(f"{args.file}: a table is not that of its rows: run "
              f"tools/results_table.py --update {args.file}", file=sys.stderr)
        return 1
    if args.update and text != new:
        with open(args.file, "w", encoding="utf-8") as file:
            file.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
