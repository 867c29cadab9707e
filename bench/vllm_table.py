# SPDX-License-Identifier: Apache-2.0
"""vllm_table.py - the rows of vllm_serve.py as tables: speeds, tokens and
log-probabilities against bfloat16, profiles, what failed."""

import json

BASE = ":bf16"


def read(path):
    """The rows of a file; raises ValueError, which names the line."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            if not isinstance(row, dict) or "step" not in row:
                raise ValueError(f"line {number}: is no row of vllm_serve.py")
            rows.append(row)
    return rows


class _Rows:
    def __init__(self, rows):
        self.rows = rows
        self.runs = list(dict.fromkeys(r["run"] for r in rows if "run" in r))

    def find(self, run, step, **wanted):
        """The last good row, or {}."""
        found = [r for r in self.rows if r.get("run") == run and r["step"] == step
                 and "error" not in r
                 and all(r.get(k) == v for k, v in wanted.items())]
        return found[-1] if found else {}

    def values(self, step, key):
        return sorted({r[key] for r in self.rows if r["step"] == step and key in r})


def difference(row, base):
    """What two rows of tokens have in common: (of their most probable first tokens,
    the largest difference of log-probabilities less their mean, equal tokens)."""
    a, b = row["first"], base["first"]
    both = sorted(set(a) & set(b))
    apart = [a[k] - b[k] for k in both]
    mean = sum(apart) / len(apart) if apart else 0
    return (len(both), max((abs(x - mean) for x in apart), default=0),
            sum(x == y for x, y in zip(row["tokens"], base["tokens"])))


def _speeds(rows):
    batches, lengths = rows.values("decode", "batch"), rows.values("first token",
                                                                   "prompt")
    yield "| run | start s | " + " | ".join(
        [f"batch {b}: tokens/s" for b in batches]
        + [f"first of {n}: ms" for n in lengths]) + " |"
    yield "|---" * (2 + len(batches) + len(lengths)) + "|"
    for run in rows.runs:
        cells = [rows.find(run, "started").get("start_s", "")]
        cells += [rows.find(run, "decode", batch=b).get("tokens_per_s", "")
                  for b in batches]
        cells += [rows.find(run, "first token", prompt=n).get("ms", "")
                  for n in lengths]
        yield f"| {run} | " + " | ".join(map(str, cells)) + " |"


def _tokens(rows):
    """Each row of tokens against the run in bfloat16 with the same options and the same
    prompt; a row again=True also against its first time."""
    for row in rows.rows:
        if row["step"] != "tokens" or "error" in row:
            continue
        key = {k: row[k] for k in ("prompt", "seed", "again", "lora_adapter")
               if k in row}
        model, _, *options = row["run"].split(":")
        bases = {f"{model}{BASE}": key}
        if "features" in options:
            bases = {f"{model}{BASE}:features": key}
            if not row["lora_adapter"]:  # whole prompts, nothing cached
                bases[f"{model}:nibblas:w4a16"] = {k: key[k]
                                                   for k in ("prompt", "seed")}
        if row.get("again"):
            bases[row["run"]] = {**key, "again": False}
        for base, wanted in bases.items():
            other = rows.find(base, "tokens", **wanted)
            if other and other is not row:
                common, apart, equal = difference(row, other)
                apart = f", log-probabilities differ by {apart:.4f}" if common else ""
                yield (f"{row['run']} {key}: {row['ms']} ms, {row['cached']} cached; "
                       f"against {base}: {common} tokens in common{apart}, {equal} of "
                       f"{len(row['tokens'])} tokens equal")


def _profiles(rows):
    for row in rows.rows:
        if row["step"] == "profile" and "error" not in row:
            yield (f"{row['run']} batch {row['batch']}, prompt {row['prompt']}, "
                   f"{row['new']} new: {row['ms']} ms, kernels {row['gpu_us']} us")
            for title in ("kernels", "calls"):
                for name, us, count in row[title][:12]:
                    yield f"  {title[:-1]} {us:8d} us {count:6d} x  {name}"


def text(rows):
    rows = _Rows(rows)
    out = [f"versions: {r}" for r in rows.rows if r["step"] == "versions"]
    out += _speeds(rows)
    out += [f"{run}: layers {rows.find(run, 'layers').get('layers', 'unknown')}"
            for run in rows.runs]
    out += _tokens(rows)
    out += _profiles(rows)
    out += [f"failed: {r.get('run', '')} {r['step']}: {r['error']}" for r in rows.rows
            if "error" in r]
    return "\n".join(out)
