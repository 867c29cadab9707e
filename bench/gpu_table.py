#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_table.py - measures the products and layers of docs/performance-hopper.md on one
GPU, in one process: gpu_baselines.py for each preset and gpu_moe_layer.py for "layers".

    gpu_table.py --library libnibblas.so --out results
    gpu_table.py --out results --preset experts:P,Q seeds:G layers:mixtral-8x7b

A preset may be followed by the names that --only (for layers: --shapes) selects.  The
rows of a preset are in OUT/PRESET.json, written after each row, for results_table.py.
With --minutes the run stops in time and prints the presets that are left, to measure
them in another run.  --baselines names the rivals that must run, where they compute a
preset's products: the status is 1 if one cannot."""

import argparse
import os
import sys
import time

import gpu_baselines
from gpu_operands import PRESETS, find_nib, shapes_of
from gpu_torch import baselines_of

LAYERS = "layers"


def read_args(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(here, "libnibblas.so"))
    parser.add_argument("--preset", nargs="+", metavar="PRESET[:NAMES]",
                        default=["decode", "experts", "seeds", "prefill", LAYERS],
                        help="of " + ", ".join([*PRESETS, LAYERS]))
    parser.add_argument("--out", default=".", metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--activations", default="nvfp4,fp16", metavar="LIST",
                        help="of nibblas's products")
    parser.add_argument("--baselines", metavar="LIST",
                        help="as gpu_baselines.py has it; layers: Humming's, if it is "
                        "among them")
    parser.add_argument("--tokens", default="1,4,16,64,256", help="of layers")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(argv)
    for preset in args.preset:
        if preset.partition(":")[0] not in (*PRESETS, LAYERS):
            parser.error(f"--preset {preset}: must be of "
                         + ", ".join([*PRESETS, LAYERS]))
    return args


def layer_ways(baselines):
    """The ways of gpu_moe_layer.py; None: all, none of which has to run."""
    if not baselines:
        return None
    ways = ["torch grouped bf16", "W4A4", "W4A16"]
    if "humming" in baselines.split(","):
        ways += ["humming W4A16", "humming products W4A16"]
    return ways


def computing(args, preset):
    """Those of --baselines that compute some product of a preset."""
    shapes = shapes_of(find_nib(args.library), preset)
    known = {name for shape in shapes for name, _ in baselines_of(shape)}
    return [name for name in args.baselines.split(",")
            if any(gpu_baselines.is_wanted([name], k) for k in known)]


def measure(args, preset, minutes):
    """The exit status of one preset."""
    name, _, only = preset.partition(":")
    common = ["--minutes", f"{minutes:.2f}",
              "--json", os.path.join(args.out, name + ".json")]
    common += ["--dry-run"] if args.dry_run else []
    if name == LAYERS:
        os.environ.setdefault("NIBBLAS_LIBRARY", os.path.abspath(args.library))
        import gpu_moe_layer

        ways = layer_ways(args.baselines)
        return gpu_moe_layer.main([
            *common, "--tokens", args.tokens, *(["--shapes", only] if only else []),
            *(["--ways", ",".join(ways)] if ways else [])])
    rivals = []
    if args.baselines:
        named = computing(args, name)
        rivals = ["--baselines", ",".join(named)] if named else ["--no-baselines"]
    return gpu_baselines.main([
        *common, "--library", args.library, "--preset", name, "--packed",
        "--activations", args.activations, *(["--only", only] if only else []),
        *rivals])


def main(argv=None):
    args = read_args(argv)
    os.makedirs(args.out, exist_ok=True)
    end, status, left = time.monotonic() + 60 * args.minutes, 0, []
    for preset in args.preset:
        minutes = (end - time.monotonic()) / 60
        if minutes <= 0:
            left.append(preset)
            continue
        print(f"---- {preset}", flush=True)
        begin = time.monotonic()
        status |= measure(args, preset, minutes)
        print(f"---- {preset}: {time.monotonic() - begin:.0f} s", flush=True)
    if left:
        print("not reached in time: --preset", *left)
    return 1 if left else status


if __name__ == "__main__":
    sys.exit(main())
