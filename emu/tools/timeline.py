#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""timeline.py [--from US] [--to US] [-o FILE.svg] TRACE.json

Draws a timeline of NIBEMU_TRACE as SVG: a row for each warp and engine that is active
between those times, wide enough to be read on a phone.  Times are predictions, and the
picture is marked as such."""

import argparse
import collections
import html
import json
import sys

WIDTH, LEFT, ROW, TOP = 480, 148, 16, 84
COLOURS = {
    "issue": "#1b7f5c",
    "wait: pipe": "#8ecf9f",
    "wait: operands": "#f2c14e",
    "wait: loads": "#e07a3f",
    "wait: mbarrier": "#c0504d",
    "wait: barrier": "#9a6fb0",
    "wait: wgmma": "#4f7cc4",
    "wait: copies": "#7a4a2b",
    "wait: grid before": "#9b9b9b",
    "wait: fence": "#3f7f7a",
    "wait: tcgen05": "#4f7cc4",
    "busy": "#30343b",
}


def read(path):
    """Rows in order: (process, row) -> name and intervals (begin, length, kind)."""
    with open(path, encoding="ascii") as file:
        events = json.load(file)
    names, processes = {}, {}
    rows = collections.defaultdict(list)
    for e in events:
        if e["name"] == "process_name":
            processes[e["pid"]] = e["args"]["name"]
        elif e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        else:
            rows[e["pid"], e["tid"]].append((e["ts"], e["dur"], e["name"]))
    return [(processes.get(key[0], "").split(" (")[0], names.get(key, ""), rows[key])
            for key in sorted(rows)]


def legend(kinds):
    """A line of words for the colours that occur."""
    out, x, y = [], 8, 40
    for kind in COLOURS:
        if kind not in kinds:
            continue
        width = 18 + 7 * len(kind)
        if x + width > WIDTH:
            x, y = 8, y + 17
        out.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" '
                   f'fill="{COLOURS[kind]}"/>'
                   f'<text x="{x + 15}" y="{y}">{kind}</text>')
        x += width + 8
    return out


def draw(rows, begin, end):
    """The picture as text."""
    scale = (WIDTH - LEFT - 8) / (end - begin)
    height = TOP + ROW * len(rows) + 28
    kinds = {kind for _, _, stretches in rows for _, _, kind in stretches}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12" fill="#222">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           '<text x="8" y="18" font-size="14">predicted, not measured; '
           f'{begin:.1f} to {end:.1f} us</text>']
    out += legend(kinds)
    for number, (process, name, stretches) in enumerate(rows):
        y = TOP + ROW * number
        out.append(f'<text x="8" y="{y + 11}">{html.escape(process)} '
                   f'{html.escape(name.replace("CTA 0 ", ""))}</text>')
        for ts, length, kind in stretches:
            left, right = max(ts, begin), min(ts + length, end)
            if right > left:
                out.append(f'<rect x="{LEFT + (left - begin) * scale:.2f}" y="{y}" '
                           f'width="{(right - left) * scale:.2f}" height="{ROW - 3}" '
                           f'fill="{COLOURS.get(kind, "#ccc")}"/>')
    axis = TOP + ROW * len(rows)
    for k in range(5):
        x = LEFT + (WIDTH - LEFT - 8) * k / 4
        anchor = "middle" if k < 4 else "end"
        out.append(f'<line x1="{x:.1f}" y1="{axis}" x2="{x:.1f}" y2="{axis + 5}" '
                   f'stroke="#222"/><text x="{x:.1f}" y="{axis + 19}" '
                   f'text-anchor="{anchor}">{begin + (end - begin) * k / 4:.1f}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="begin", type=float)
    parser.add_argument("--to", dest="end", type=float)
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("trace")
    a = parser.parse_args()
    rows = read(a.trace)
    if not rows:
        sys.exit(f"timeline.py: {a.trace}: no stretch of time in it")
    begin = min(s[0] for r in rows for s in r[2]) if a.begin is None else a.begin
    end = max(s[0] + s[1] for r in rows for s in r[2]) if a.end is None else a.end
    rows = [r for r in rows if any(ts < end and ts + length > begin
                                   for ts, length, _ in r[2])]
    text = draw(rows, begin, end)
    if a.output == "-":
        sys.stdout.write(text)
    else:
        with open(a.output, "w", encoding="ascii") as file:
            file.write(text)


if __name__ == "__main__":
    main()
