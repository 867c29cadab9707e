# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gptq - quantises a folder of transformers to NVFP4 by GPTQ."""

import argparse
import sys

from nibblas._library import Error

try:
    from nibblas import gptq
except ImportError as missing:
    print(f"nibblas.gptq: {missing}: install torch and transformers", file=sys.stderr)
    sys.exit(1)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m nibblas.gptq", formatter_class=argparse.RawTextHelpFormatter,
        description="Quantises a folder of transformers to NVFP4 by GPTQ.  A run that "
        "was\nstopped continues; its finished blocks are in OUT_DIR/.nibblas-gptq.")
    add = parser.add_argument
    add("model", metavar="MODEL_DIR")
    add("out", metavar="OUT_DIR")
    add("--calibration", required=True, metavar="FILE",
        help='JSON lines with "text"')
    add("--windows", type=int, default=128, help="windows of the text (128)")
    add("--length", type=int, default=512, help="tokens of each (512)")
    add("--seed", type=int, default=0, help="of the windows' places (0)")
    add("--damping", type=float, default=0.1,
        help="of the Hessian's diagonal, times its mean (0.1)")
    add("--block-size", type=int, default=128,
        help="columns before the rest is updated (128)")
    add("--act-order", action="store_true",
        help="columns in the order of their inputs' squares")
    add("--scales", choices=["amax", "four-six", "mse"], default="mse",
        help="the scales that are tried for a block (mse: nine of them)")
    add("--choose", choices=["static", "search"], default="search", help="""\
static: scales of the original weights; search: of the updated
weights, by the output's error (the default)""")
    add("--target", choices=["dense", "quantised"], default="dense", help="""\
dense: layers make good what the layers before them lost (the
default); quantised: only what they lose themselves""")
    add("--activations", choices=["dense", "nvfp4"], default="dense",
        help="dense: W4A16 (the default); nvfp4: W4A4, with input scales")
    add("--min-tokens", type=int, default=256,
        help="experts that fewer tokens reach are rounded to nearest (256)")
    add("--device", default="cpu", help="cpu (the default), cuda, ...")
    add("--restart", action="store_true", help="do not continue a stopped run")
    return parser


def main(arguments=None):
    given = _parser().parse_args(arguments)
    try:
        summary = gptq.quantize(
            given.model, given.out, given.calibration, windows=given.windows,
            length=given.length, seed=given.seed, damping=given.damping,
            block_size=given.block_size, act_order=given.act_order,
            scales=given.scales, choose_scales=given.choose, target=given.target,
            activations=given.activations, min_tokens=given.min_tokens,
            device=given.device, restart=given.restart)
    except Error as error:
        print(f"nibblas.gptq: {error}", file=sys.stderr)
        return 1
    for row in summary["rounded"]:
        print(f"rounded to nearest: {row['layer']}: {row['reason']}", file=sys.stderr)
    print(f"{len(summary['layers'])} matrices are NVFP4 in {given.out}, "
          f"{len(summary['rounded'])} of them rounded to nearest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
