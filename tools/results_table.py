#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results_table.py - rows of bench/gpu_baselines.py as a table in Markdown.

    results_table.py docs/results/DATE-GPU.json [--only G1,M1]
    results_table.py --update README.md     # writes the tables of a page anew
    results_table.py --check README.md      # 1 if one is not that of its rows

In a page a table stands between two lines,
    <!-- table: docs/results/DATE-GPU.json G1,M1 -->
    <!-- /table -->
with the file relative to the page and, if not all, the rows by name."""

import argparse
import json
import os
import re
import sys

BLOCK = re.compile(r"(<!-- table: (\S+)(?: (\S+))? -->\n)(.*?)"
                   r"(<!-- /table -->\n)", re.DOTALL)


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    wrong = [r for r in rows if r.get("ok") is False]
    if wrong:
        sys.exit(f"{path}: {wrong[0]['op']} {wrong[0]['shape']} is wrong: "
                 "a table of wrong results is none")
    return [r for r in rows if r["op"] != "peak"]


def is_baseline(row):
    return row["backend"].startswith("baseline:")


def us(row):
    return f"{row['time_s'] * 1e6:.1f} us"


def table(path, only=None):
    """only: names of rows, or None."""
    names = only.split(",") if only else None
    rows = [r for r in read_rows(path) if r.get("time_s")
            and (names is None or r.get("name") in names)]
    ours = [r for r in rows if not is_baseline(r)]
    baselines = list(dict.fromkeys(r["backend"] for r in rows if is_baseline(r)))
    times = {(r["op"], r["shape"], r["backend"]): r for r in rows}
    lines = [["product", "nibblas", "of limit"] + [p[9:] for p in baselines],
             ["---"] * (3 + len(baselines))]
    for row in ours:
        line = [f"{row['op']} {row['shape']}", us(row),
                f"{row['fraction_of_limit'] * 100:.0f} %"]
        for baseline in baselines:
            other = times.get((row["op"], row["shape"], baseline))
            line.append(f"{us(other)}, {other['time_s'] / row['time_s']:.2f}x"
                        if other else "")
        lines.append(line)
    return "".join("|" + "|".join(x if x == "---" else f" {x} " if x else " "
                                  for x in line) + "|\n" for line in lines)


def rewritten(page):
    folder = os.path.dirname(os.path.abspath(page))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    return text, BLOCK.sub(
        lambda m: m[1] + table(os.path.join(folder, m[2]), m[3]) + m[5], text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", help="rows, or with an option a page")
    parser.add_argument("--only", metavar="NAMES")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--update", action="store_true")
    action.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.update and not args.check:
        sys.stdout.write(table(args.file, args.only))
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
