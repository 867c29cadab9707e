#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results_table.py - tables of measured and predicted times, in Markdown.

    results_table.py rows.json [--only G1,M] [--short | --card | --cpu | --cpu-short]
    results_table.py --update PAGE       # rewrites the tables of a page
    results_table.py --check PAGE        # status 1 if one of them is out of date
    results_table.py --record rows.json [--run COMMAND] > docs/results/FILE.json

In a page, a table is between two lines:
    <!-- table: FILE.json [NAMES] [FILE.json [NAMES]]... [STYLE] -->
    <!-- /table -->
Files are relative to the page.  NAMES selects rows by name or by its first letter
(G1,M); without it all rows of the file are printed.

Styles: the default has one column per baseline.  "short" has only A of NVFP4, and the
fastest baseline of 16 bits and of FP8.  "card" is for the performance pages: goal,
limit, our times side by side, the best rivals, and under the table what was measured,
when and with which versions.  "cpu" is for rows of nib bench on a CPU: a line for each
number of threads and type of A, with rates; "cpu-short" has only the most threads, and
of the baselines those of SHORT_BASELINES.  Every style lists the rivals that were not
measured, with the reasons.

--record writes what docs/results keeps of a run: one row per line, without empty keys
and without the samples, whose number remains; COMMAND is what made the file.  It
reads rows of nib bench, gpu_baselines.py and gpu_moe_layer.py."""

import argparse
import json
import os
import re
import sys

BLOCK = re.compile(
    r"(<!-- table: (.*?) -->\n)(.*?)(<!-- /table -->\n)", re.DOTALL
)
BASELINE = "baseline:"
STYLES = ("short", "card", "cpu", "cpu-short")
OURS = {"nvfp4": "W4A4", "fp16": "W4A16 fp16", "bf16": "W4A16 bf16"}

# Goals in us, set before the Hopper kernels were written, for an H200.
GOALS = {
    "NVIDIA H200": dict(
        zip(
            "G1 G2 G3 G4 M1 M2 M3 M4 D1 D2 D3 D4 V1 V2 V3 "
            "E1 E8 E16 E32 E64 S1 S16 S64".split(),
            (85, 45, 20, 11, 43, 12, 7, 200, 40, 76, 19, 60, 17, 31, 9)
            + (125, 135, 145, 165, 210, 10.5, 11, 16),
        )
    )
}


# ---- rows ------------------------------------------------------------------


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_rows(path, only=None):
    """The rows of a file but for peaks; only: "G1,M", names or first letters."""
    rows = load(path)
    wrong = [r for r in rows if r.get("ok") is False and not is_baseline(r)]
    if wrong:
        sys.exit(
            f"{path}: {wrong[0]['op']} {wrong[0]['shape']}: the result is "
            "wrong, so no table is made"
        )
    names = only.split(",") if only else None
    return [
        r
        for r in rows
        if r["op"] != "peak"
        and (
            names is None
            or r.get("name") in names
            or (r.get("name") or "")[:1] in names
        )
    ]


def is_baseline(row):
    return row["backend"].startswith(BASELINE)


def problem(row):
    return row["op"], row["shape"]


def product(row):
    """What was multiplied; A is NVFP4 unless the row has another type."""
    kind = row.get("activations") or "nvfp4"
    return f"{row['op']} {row['shape']}" + ("" if kind == "nvfp4" else f", A of {kind}")


# ---- tables with one row per measurement -----------------------------------


def us(row):
    return f"{row['time_s'] * 1e6:.1f} us"


def compared(row, other):
    """A baseline's time, and the speedup over it."""
    return f"{us(other)}, {other['time_s'] / row['time_s']:.2f}x"


def all_baselines(rows):
    """A heading for each baseline, and a function that makes the cells of a row."""
    names = list(dict.fromkeys(r["backend"] for r in rows if is_baseline(r)))
    times = {(*problem(r), r["backend"]): r for r in rows}

    def cells(row):
        for name in names:
            other = times.get((*problem(row), name))
            yield compared(row, other) if other else ""

    return [name[len(BASELINE) :] for name in names], cells


def fastest(rows, row, is_kind):
    """The fastest baseline of a row's problem whose name is_kind() accepts, or None."""
    others = [
        r
        for r in rows
        if is_baseline(r) and problem(r) == problem(row) and is_kind(r["backend"])
    ]
    return min(others, key=lambda r: r["time_s"], default=None)


def fastest_baselines(rows):
    """The same with one column for 16 bits and one for FP8."""

    def cells(row):
        for fp8 in (False, True):
            best = fastest(rows, row, lambda name, fp8=fp8: ("fp8" in name) == fp8)
            yield (
                f"{best['backend'][len(BASELINE):]}: {compared(row, best)}"
                if best
                else ""
            )

    return ["fastest 16-bit baseline", "fastest FP8 baseline"], cells


def list_table(all_rows, short=False):
    rows = [r for r in all_rows if r.get("time_s")]
    heads, cells = (fastest_baselines if short else all_baselines)(rows)
    lines = [["product", "nibblas", "of limit"] + heads, ["---"] * (3 + len(heads))]
    ours = ("nvfp4",) if short else OURS
    for row in rows:
        if not is_baseline(row) and (row.get("activations") or "nvfp4") in ours:
            lines.append(
                [
                    product(row),
                    us(row),
                    f"{row['fraction_of_limit'] * 100:.0f} %",
                    *cells(row),
                ]
            )
    text = "".join(
        "|"
        + "|".join(x if x == "---" else f" {x} " if x else " " for x in line)
        + "|\n"
        for line in lines
    )
    skipped = not_measured(all_rows)
    return text + (f"\n{skipped}" if skipped else "")


# ---- the table of a card ---------------------------------------------------

RIVALS = {
    "best 16-bit rival": lambda name: not re.search("fp8|public|products", name),
    "best FP8 rival": lambda name: "fp8" in name,
    "Humming for sm_80": lambda name: "humming-sm80" in name,
    "Marlin": lambda name: "marlin" in name,
    "best public kernel": lambda name: "public" in name,
    "products only": lambda name: "products" in name,
}


def seconds(row):
    predicted = row.get("predicted_us") if row.get("predicted") else None
    return predicted * 1e-6 if predicted else row.get("time_s")


def short_us(time_s):
    """Microseconds with three to four digits."""
    value = time_s * 1e6
    return f"{value:.0f}" if value >= 999.5 else f"{value:.1f}"


def goal(row):
    """The goal of a row in us as text."""
    if row.get("goal_us"):
        return f"{row['goal_us']:g}"
    machine = row.get("machine") or ""
    for card, goals in GOALS.items():
        if machine.startswith(card) and row.get("name") in goals:
            return f"{goals[row['name']]:g}"
    return ""


def column_of(row):
    """The heading of one of our times."""
    if row.get("predicted"):
        return f"predicted by {row['backend']}"
    return OURS[row.get("activations") or "nvfp4"]


def title(row):
    """G1: group_gemm m=...; a mixture of experts has its rows and experts instead."""
    text = re.sub(
        r"^m=.*\((\d+), (\d+) rows\) n=(\d+) k=(\d+)$",
        r"\2 rows, \1 experts of \3x\4",
        row["shape"],
    )
    name = row.get("name")
    return (f"{name}: " if name else "") + f"{row['op']} {text}"


def band(row):
    """ (4.5 to 6.0), where a prediction has one."""
    if not row.get("low_us"):
        return ""
    return f" ({row['low_us']:.1f} to {row['high_us']:.1f})"


def card_line(found, rows, columns):
    """One problem as cells by heading."""
    first = next(iter(found.values()))
    cells = {"problem": title(first), "goal": goal(first)}
    if first.get("limit_s"):
        cells["limit"] = short_us(first["limit_s"])
    for column in columns:
        if column in found:
            cells[column] = short_us(seconds(found[column])) + band(found[column])
    if first.get("limit_s") and first.get("predicted"):
        cells["of limit"] = f"{first['limit_s'] / seconds(first) * 100:.0f} %"
    for head, is_kind in RIVALS.items():
        best = fastest(rows, first, is_kind)
        if best:
            name = best["backend"][len(BASELINE) :]
            cells[head] = short_us(best["time_s"])
            if head.startswith(("best", "products")):
                cells[head] = f"{name}: {cells[head]}"
            cells[f"{head}, ratio"] = f"{best['time_s'] / seconds(first):.2f}"
    return cells


def aligned(lines):
    """A Markdown table whose columns have one width; the first line is the head."""
    widths = [max(3, *map(len, column)) for column in zip(*lines)]
    lines = [lines[0], ["-" * w for w in widths], *lines[1:]]
    return "".join(
        "| " + " | ".join(x.ljust(w) for x, w in zip(line, widths)) + " |\n"
        for line in lines
    )


def command_of(rows):
    """The command that measures all rows of a file again."""
    command = rows[0].get("command") or ""
    kinds = list(dict.fromkeys(r["activations"] for r in rows if r.get("activations")))
    command = re.sub(r" --(only|activations) \S+", "", command)
    if len(kinds) > 1 and "gpu_baselines.py" in command:
        command += " --activations " + ",".join(kinds)
    return command


def letters(rows):
    """The names of rows in short: "G, M", or nothing."""
    names = dict.fromkeys(re.sub(r"\d+$", "", r.get("name") or "") for r in rows)
    return ", ".join(n for n in names if n)


def machine_of(row):
    return re.sub(r", under load .*", "", row.get("machine") or "machine not recorded")


def rates(path):
    """The peaks of a file: what limits were computed from."""
    peaks = {r["shape"]: r for r in load(path) if r["op"] == "peak"}
    read = peaks.get("read bandwidth")
    multiply = peaks.get("wgmma f16") or peaks.get("mma f16")
    parts = []
    if read and read.get("gbps"):
        parts.append(f"bytes / {read['gbps'] / 1e3:.2f} TB/s")
    if multiply and multiply.get("gflops"):
        parts.append(f"FLOP / {multiply['gflops'] / 1e3:.0f} TFLOP/s")
    return "; limit: " + " or ".join(parts) if parts else ""


def versions(rows):
    """The rivals' names with their versions."""
    names = {}
    for row in rows:
        if is_baseline(row) and row.get("time_s"):
            version = row.get("version") or "version not recorded"
            name = row["backend"][len(BASELINE) :]
            names.setdefault(version, dict.fromkeys([name]))[name] = None
    return "; ".join(f"{', '.join(n)} ({v})" for v, n in names.items())


def not_measured(rows):
    """Which rivals could not run, and why."""
    reasons = {}
    for row in rows:
        if row.get("skipped"):
            name = row["backend"][len(BASELINE) :] or row["backend"]
            why = re.sub(r"\s+", " ", row["skipped"])
            why = why if len(why) <= 100 else why[:97] + "..."
            reasons.setdefault((name, why.split(". ")[0]), []).append(
                row.get("name") or row["shape"]
            )
    return "".join(
        f"- Not measured: {name} for {', '.join(dict.fromkeys(where))}: {why}\n"
        for (name, why), where in reasons.items()
    )


def origin(rows):
    """What, when, where and by which command our rows were measured or predicted."""
    first = rows[0]
    what = letters(rows) or ", ".join(dict.fromkeys(r["op"] for r in rows))
    where = machine_of(first)
    if first.get("predicted"):
        where = "predicted by " + first["backend"]
    command = command_of(rows)
    return f"- {what}: {(first.get('date') or '')[:10]}, {where}" + (
        f"; `{command}`" if command else ""
    )


def caption(path, rows):
    """The list under a table, for the rows of one file."""
    ours = {}
    for row in rows:
        if not is_baseline(row):
            kind = row["backend"] if row.get("predicted") else ""
            ours.setdefault(kind, []).append(row)
    rivals = versions(rows)
    return (
        "\n".join(map(origin, ours.values()))
        + rates(path)
        + (f"; rivals: {rivals}" if rivals else "")
        + "\n"
        + not_measured(rows)
    )


def card_table(parts):
    """parts: [(path, rows)]."""
    found, lines = [], []
    for _, rows in parts:
        problems = {}
        for row in rows:
            if not is_baseline(row) and seconds(row):
                problems.setdefault(problem(row), {}).setdefault(column_of(row), row)
        found += [(times, rows) for times in problems.values()]
    columns = list(dict.fromkeys(c for times, _ in found for c in times))
    for times, rows in found:
        timed = [r for r in rows if r.get("time_s")]
        lines.append(card_line(times, timed, columns))
    heads = ["problem", "goal", "limit", *columns[:1], "of limit", *columns[1:]]
    heads += [h for name in RIVALS for h in (name, f"{name}, ratio")]
    heads = [h for h in heads if any(line.get(h) for line in lines)]
    text = aligned(
        [["ratio" if h.endswith(", ratio") else h for h in heads]]
        + [[line.get(h, "") for h in heads] for line in lines]
    )
    return text + "\n" + "".join(caption(*part) for part in parts)


# ---- the table of a CPU ----------------------------------------------------

SHORT_BASELINES = ("onednn-bf16", "openblas-f32")


def rate(row):
    """GB/s where reading bounds the row, else GFLOP/s."""
    reads = "bandwidth" in (row.get("limit_kind") or "")
    value = row["gbps"] if reads else row["gflops"]
    digits = 0 if value >= 99.95 else 1
    return f"{value:.{digits}f} {'GB/s' if reads else 'GFLOP/s'}"


def of_limit(row):
    text = f"{row['fraction_of_limit'] * 100:.0f} %"
    kind = re.sub(r" [a-z0-9]+( bf16)? k=\d+$", "", row.get("limit_kind") or "")
    note = f" ({row['limit_note']})" if row.get("limit_note") else ""
    return f"{text} of {kind}{note}"


def cpu_shape(row):
    """An MoE has its experts and the rows of each."""
    shape = re.sub(r"^m=(.*)\((\d+)(, \d+ rows)?\) n=(\d+) k=(\d+)$",
                   r"\2 experts, m=\1 \4x\5", row["shape"])
    return f"{row['op']} {shape.replace('... ', '..., ')}"


def cpu_caption(path, rows):
    ours = [r for r in rows if not is_baseline(r)]
    first = ours[0]
    peaks = {}
    for peak in load(path):
        if peak["op"] == "peak":
            key = "gbps" if peak.get("gbps") else "gflops"
            peaks.setdefault(peak["shape"], []).append(
                f"{peak[key]:.{0 if peak[key] >= 99.95 else 1}f} "
                f"({peak['threads']} thread{'s' * (peak['threads'] > 1)})"
            )
    run = f"; `{first['run']}`" if first.get("run") else ""
    lines = [
        f"- {first['date'][:10]}, {machine_of(first)}, nib {first['version']}{run}"
    ]
    busy = [r["others_busy"] for r in ours if r.get("others_busy") is not None]
    if busy:
        lines.append(
            f"- Other programs used {sorted(busy)[len(busy) // 2]:.1f} of "
            f"{ours[0]['processors']:.0f} processors (median of the rows)."
        )
    if first.get("origin"):
        lines.append(f"- {first['origin']}")
    if peaks:
        lines.append(
            "- Measured limits in GFLOP/s, GOP/s or GB/s: "
            + "; ".join(f"{name} {', '.join(v)}" for name, v in peaks.items())
        )
    rivals = versions(rows)
    if rivals:
        lines.append(
            f"- Baselines: {rivals}. A ratio is the baseline's time over "
            "nibblas's; their weights were expanded beforehand."
        )
    return "\n".join(lines) + "\n" + not_measured(rows)


def cpu_table(parts, short=False):
    """parts: [(path, rows)]; a line for each problem, number of threads and A."""
    rows = [r for _, part in parts for r in part]
    ours = [r for r in rows if not is_baseline(r) and r.get("time_s")]
    most = max(r["threads"] for r in ours)
    if short:
        ours = [r for r in ours if r["threads"] == most]
    others = {}
    for r in rows:
        name = r["backend"][len(BASELINE) :]
        if is_baseline(r) and r.get("time_s") and (
            not short or name in SHORT_BASELINES
        ):
            # In a run with several types of A the baseline is in each of them.
            others.setdefault(name, {}).setdefault((*problem(r), r["threads"]), r)
    kinds = {r.get("activations") for r in ours}
    heads = ["problem", "threads"] + ["A"] * (len(kinds) > 1) + ["nibblas", "of limit"]
    lines = [heads + list(others)]
    for r in ours:
        line = [cpu_shape(r), str(r["threads"])]
        line += [r["activations"]] * (len(kinds) > 1)
        line += [rate(r), of_limit(r)]
        for times in others.values():
            other = times.get((*problem(r), r["threads"]))
            ratio = other["time_s"] / r["time_s"] if other else 0
            line.append(f"{ratio:.{0 if ratio >= 10 else 2}f}x" if other else "")
        lines.append(line)
    text = aligned(lines)
    return text + "\n" + "".join(cpu_caption(*part) for part in parts)


# ---- pages -----------------------------------------------------------------


def table(files, style=None):
    """files: [(path, names or None)]."""
    parts = [(path, read_rows(path, only)) for path, only in files]
    if style == "card":
        return card_table(parts)
    if style in ("cpu", "cpu-short"):
        return cpu_table(parts, style == "cpu-short")
    return list_table([r for _, rows in parts for r in rows], style == "short")


def parse_marker(words, folder):
    """The words of a marker line as ([(path, names)], style)."""
    files, style = [], None
    for word in words.split():
        if word.endswith(".json"):
            files.append((os.path.join(folder, word), None))
        elif word in STYLES:
            style = word
        else:
            files[-1] = (files[-1][0], word)
    return files, style


def rewritten(page):
    folder = os.path.dirname(os.path.abspath(page))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    return text, BLOCK.sub(
        lambda m: m[1] + table(*parse_marker(m[2], folder)) + m[4], text
    )


def rewrite(page, is_check):
    """Updates a page; is_check: only compares it, and returns 1 if it differs."""
    text, new = rewritten(page)
    if text == new:
        return 0
    if is_check:
        print(
            f"{page}: a table is out of date: run "
            f"tools/results_table.py --update {page}",
            file=sys.stderr,
        )
        return 1
    with open(page, "w", encoding="utf-8") as file:
        file.write(new)
    return 0


# ---- recording -------------------------------------------------------------


def from_layers(rows):
    """Rows of gpu_moe_layer.py as those of nib bench."""
    head, *rows = rows
    for r in rows:
        way, count = r["way"], r.get("tokens", 0)
        limit = r["bytes"] / head["read_bps"] if "us" in r and head["read_bps"] else 0
        ours = way.startswith("W4")
        yield {
            "op": "moe_layer",
            "shape": f"{r['shape']}, {count or 'all'} token{'s' * (count != 1)}",
            "backend": ("cuda: " + way) if ours else BASELINE + way.split(" W4")[0],
            "activations": ("nvfp4" if way == "W4A4" else "bf16") if ours else None,
            "time_s": r["us"] * 1e-6 if "us" in r else None,
            "limit_s": limit or None,
            "error": r.get("worst"),
            "ok": r.get("ok"),
            "skipped": r.get("skipped"),
            "clock_before_mhz": r.get("clock_before_mhz"),
            "clock_after_mhz": r.get("clock_after_mhz"),
            "version": r.get("version"),
            "machine": head["machine"],
            "date": head.get("date"),
            "command": "gpu_moe_layer.py",
        }


def recorded(rows, run=None):
    """Rows without empty keys and samples, numbers with nine digits, one per line."""
    if rows and "way" in rows[-1]:
        rows = from_layers(rows)
    lines = []
    for row in rows:
        if row.get("samples_s"):
            row["samples"] = len(row["samples_s"])
        row.setdefault("time_s", None)  # nib report requires the key
        if run:
            row["run"] = run
        lines.append(
            json.dumps(
                {
                    key: float(f"{x:.9g}") if isinstance(x, float) else x
                    for key, x in row.items()
                    if (x not in (None, "", []) or key == "time_s")
                    and key not in ("samples_s", "speedup", "against_baselines")
                }
            )
        )
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", help="rows, or with --update and --check a page")
    parser.add_argument("--only", metavar="NAMES")
    parser.add_argument("--run", metavar="COMMAND")
    style = parser.add_mutually_exclusive_group()
    for name in STYLES:
        style.add_argument(
            f"--{name}", dest="style", action="store_const", const=name
        )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--update", action="store_true")
    action.add_argument("--check", action="store_true")
    action.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if args.update or args.check:
        return rewrite(args.file, args.check)
    if args.record:
        sys.stdout.write(recorded(load(args.file), args.run))
    else:
        sys.stdout.write(table([(args.file, args.only)], args.style))
    return 0


if __name__ == "__main__":
    sys.exit(main())
