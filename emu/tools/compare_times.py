#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_times.py [--svg FILE] [--clocks GHZ GHZ] --predicted FILE... --measured FILE...

Compares predicted with measured times: rows of nib bench --format json (a list, or one
row a line), matched by operation, shape and A.  Prints a Markdown table, the median and
the worst error, Spearman's rank correlation, and how many of the pairs of products whose
measured times differ by at least 5 % are predicted in the right order; then the same for
the rows that may be used for fitting and for those that are held out, which a hash of the
row's operation, shape and A selects.  --svg draws a scatter plot.  A row whose two plans
differ in their first word is from another kernel; it is marked and does not count.  --clocks compares thousands of cycles instead of microseconds, for a measurement
on a GPU with another clock: the clock of the prediction, then that of the measurement."""

import argparse
import hashlib
import itertools
import json
import math
import re
import statistics


def rows_of(paths):
    """All rows of some files."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.lstrip().startswith("["):
            yield from json.loads(text)
        else:
            yield from (json.loads(line) for line in text.splitlines() if line)


def ranks(values):
    """Rank of each value; equal ones share their mean."""
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def spearman(pairs):
    """Rank correlation of pairs."""
    a, b = (ranks(list(side)) for side in zip(*pairs))
    return statistics.correlation(a, b)


def name_of(row):
    """Operation and shape; older rows lack the total of a list's rows."""
    return row["op"], re.sub(r", \d+ rows\)", ")", row["shape"])


def key_of(row):
    """What both rows must have: also the kind of A, which older rows lack."""
    return *name_of(row), row.get("activations") or "nvfp4"


def is_held_out(key):
    """True for about half of all keys: constants are never fitted to these rows."""
    return hashlib.sha256("|".join(key).encode()).digest()[0] % 2 == 1


def right_order(pairs):
    """How many pairs of products differ by at least 5 %, and how many of these are
    predicted in the order of the measured times."""
    apart = [(a, b) for a, b in itertools.combinations(pairs, 2)
             if max(a[1], b[1]) >= 1.05 * min(a[1], b[1])]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in apart), len(apart)


def summary(pairs):
    """The errors of some rows in words."""
    errors = [abs(p / m - 1) for p, m in pairs]
    right, apart = right_order(pairs)
    return (f"{len(pairs)} rows: median error {100 * statistics.median(errors):.0f} %, "
            f"worst {100 * max(errors):.0f} %, Spearman {spearman(pairs):.3f}, "
            f"right order {right} of {apart}")


def kernel(row):
    """The kernel that the plan names in its first words."""
    words = (row.get("plan") or "").split()
    return " ".join(words[:2])


def scatter(pairs, unit):
    """A plot of predicted against measured, both logarithmic."""
    low = math.log10(min(min(p) for p in pairs) * 0.8)
    high = math.log10(max(max(p) for p in pairs) * 1.25)

    def at(value):
        return 300 * (math.log10(value) - low) / (high - low)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 360" '
           'font-family="sans-serif" font-size="12" fill="#222">',
           '<rect width="360" height="360" fill="#fff"/>']
    for factor, colour in ((1, "#222"), (1.25, "#aaa"), (0.8, "#aaa")):
        shift = at(10 ** low * factor)
        out.append(f'<line x1="44" y1="{316 - shift:.1f}" x2="344" '
                   f'y2="{16 - shift:.1f}" stroke="{colour}"/>')
    for value in (5, 10, 20, 50, 100, 200):
        if low < math.log10(value) < high:
            out.append(f'<text x="{44 + at(value):.1f}" y="332" '
                       f'text-anchor="middle">{value}</text>'
                       f'<text x="40" y="{320 - at(value):.1f}" '
                       f'text-anchor="end">{value}</text>')
    for predicted, measured in pairs:
        out.append(f'<circle cx="{44 + at(measured):.1f}" '
                   f'cy="{316 - at(predicted):.1f}" r="4" fill="#c0504d" '
                   'fill-opacity="0.7"/>')
    out.append(f'<text x="194" y="352" text-anchor="middle">measured, {unit}</text>'
               f'<text x="50" y="14">predicted, {unit}; grey: 25 % off</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predicted", nargs="+", required=True)
    parser.add_argument("--measured", nargs="+", required=True)
    parser.add_argument("--svg")
    parser.add_argument("--clocks", nargs=2, type=float, metavar="GHZ")
    a = parser.parse_args()
    unit = "kcycles" if a.clocks else "us"
    predicted_scale, measured_scale = a.clocks or (1, 1)
    times = {key_of(r): r for r in rows_of(a.measured)
                if str(r.get("backend", "")).startswith("cuda") and r.get("time_s")}
    pairs, held_out = [], []
    print(f"| product | predicted, {unit} | measured, {unit} | error |\n|---|---|---|---|")
    for row in rows_of(a.predicted):
        found = times.get(key_of(row))
        if not found or not row.get("predicted"):
            continue
        measured_time = found["time_s"] * 1e6 * measured_scale
        predicted_time = row["predicted_us"] * predicted_scale
        name = " ".join(name_of(row))
        if kernel(found) != kernel(row):
            print(f"| {name} | {predicted_time:.1f} | {measured_time:.1f} | another "
                  f"kernel ({kernel(found)}) |")
            continue
        pairs.append((predicted_time, measured_time))
        held_out.append(is_held_out(key_of(row)))
        print(f"| {name} | {predicted_time:.1f} | {measured_time:.1f} | "
              f"{100 * (predicted_time / measured_time - 1):+.0f} % |")
    if len(pairs) < 3:
        raise SystemExit("compare_times.py: fewer than three rows to compare")
    print(f"\n{summary(pairs)}")
    for name, held in (("fit", False), ("held out", True)):
        part = [p for p, h in zip(pairs, held_out) if h == held]
        if len(part) > 2:
            print(f"{name}: {summary(part)}")
    if a.svg:
        with open(a.svg, "w", encoding="ascii") as file:
            file.write(scatter(pairs, unit))


if __name__ == "__main__":
    main()
