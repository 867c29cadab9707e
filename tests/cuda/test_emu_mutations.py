#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_emu_mutations.py [SCHEDULES] - runs the kernels for Hopper, and the mma kernels
also for Ampere and Ada, on the software GPU with one planted bug at a time.  Each must
be reported on every schedule, by a rule that fits; without a bug there is no report.
The sets of products (SETS) are for all kernels, for few rows, for A in 16 bits, and for
experts.  Prints a table: the bug, the number of schedules on which it was found, and
the report.  Needs the kernels (nvcc), no GPU."""
import os
import re
import subprocess
import sys

BUILD = os.path.dirname(os.environ["NIB"])
PROGRAM = os.path.join(BUILD, "emu_small")
KERNELS = os.path.join(BUILD, "nibblas")
SCHEDULES = int(sys.argv[1]) if len(sys.argv) > 1 else 1

ARRIVE = "mbarrier.arrive.shared::"
UNWAITED = "has not waited|to write these bytes|never written|nothing orders"

# (bug, NIBEMU_REPLACE, what the report must say)
BUGS = [
    ("no barrier of the cluster after mbarrier.init",
     "barrier.cluster=>", "mbarrier.init of warp|no mbarrier was"),
    ("an mbarrier without its init",
     "mbarrier.init.shared::cta.b64=>#1", "no mbarrier was initialised"),
    ("no wgmma.wait_group",
     "wgmma.wait_group=>", "has not been waited for"),
    ("one group of wgmma more in flight",
     "wgmma.wait_group.sync.aligned 1;=>wgmma.wait_group.sync.aligned 2;",
     "has not been waited for|a wgmma of"),
    ("results stored before the last wgmma",
     "wgmma.wait_group.sync.aligned 0;=>wgmma.wait_group.sync.aligned 1;",
     "has not been waited for"),
    ("no wgmma.commit_group",
     "wgmma.commit_group=>", "has not been waited for|a wgmma of"),
    ("no wait at any mbarrier",
     "mbarrier.try_wait=>setp.eq.u32 p, 0, 0; // ", UNWAITED),
    ("stages are not released to the other CTA",
     ARRIVE + "cluster=>", "deadlock"),
    ("stages are not released",
     ARRIVE + "cta=>", "deadlock"),
    ("cp.async is not waited for",
     "cp.async.wait_all=>", UNWAITED),
    ("cp.async does not arrive",
     "cp.async.mbarrier.arrive=>", "deadlock"),
    ("bytes are not expected, arrivals are",
     "mbarrier.arrive.expect_tx=>mbarrier.arrive", "more arrivals"),
    ("no barrier between warps",
     "bar.sync=>", UNWAITED + "|reads it|wrote it|no mbarrier was initialised"),
    # In the vector kernel: after its wait, and before its copies.
    ("no __syncwarp() after a warp's wait for copies",
     "bar.warp.sync=>#1", "of the same warp copied to it"),
    ("copies into words that other lanes still read",
     "bar.warp.sync=>#2", "cp.async to.*of the same warp reads it"),
    ("the dependent grid does not wait",
     "griddepcontrol.wait=>", "griddepcontrol.wait|never written"),
    # With these the values are right, whatever the timing.
    ("split-k sums read without acquiring",
     "ld.acquire.gpu.global=>ld.relaxed.gpu.global", "global memory"),
    ("split-k sums published without releasing",
     "red.release.gpu=>red.relaxed.gpu", "global memory"),
    ("waits that acquire nothing",
     "mbarrier.try_wait.parity.shared=>"
     "mbarrier.try_wait.parity.relaxed.cta.shared", "nothing orders"),
    ("arrivals that release nothing",
     "mbarrier.arrive.shared::cta=>"
     "mbarrier.arrive.relaxed.cta.shared::cta", "nothing orders"),
]

# One kernel a product: a missing griddepcontrol.wait is among the others' bugs.
SKINNY = [
    ("chunks of A are not waited for",
     "mbarrier.try_wait=>setp.eq.u32 p, 0, 0; // ", UNWAITED),
    ("no arrivals for chunks", ARRIVE + "cta=>", "deadlock"),
    ("an mbarrier without its init",
     "mbarrier.init.shared::cta.b64=>#1", "no mbarrier was initialised|deadlock"),
    ("waits that acquire nothing",
     "mbarrier.try_wait.parity.shared=>"
     "mbarrier.try_wait.parity.relaxed.cta.shared", "nothing orders"),
    ("arrivals that release nothing",
     "mbarrier.arrive.shared::cta=>"
     "mbarrier.arrive.relaxed.cta.shared::cta", "nothing orders"),
    ("copies of B are not waited for", "cp.async.wait_group=>", UNWAITED),
    ("copies of B make no groups", "cp.async.commit_group=>", UNWAITED),
    ("no barrier around the sums", "bar.sync=>",
     UNWAITED + "|reads it|wrote it|no mbarrier was initialised|mbarrier.init of"),
    ("no __syncwarp()", "bar.warp.sync=>", "of the same warp"),
]

WIDE = [
    ("no wgmma.wait_group",
     "wgmma.wait_group=>", "has not been waited for"),
    ("chunks of A are not waited for",
     "mbarrier.try_wait=>setp.eq.u32 p, 0, 0; // ", UNWAITED + "|reads it"),
    ("no arrivals for chunks", ARRIVE + "cta=>", "deadlock"),
    ("copies of B are not waited for", "cp.async.wait_group=>", UNWAITED),
    ("no barrier around the sums", "bar.sync=>",
     UNWAITED + "|reads it|wrote it|no mbarrier was initialised|mbarrier.init of"),
    ("no fence.proxy.async before wgmma", "fence.proxy.async=>", "proxy|async"),
    ("the cluster's sums are not released",
     "barrier.cluster.arrive.release=>barrier.cluster.arrive.relaxed",
     "nothing orders|" + UNWAITED),
    ("arrivals that release nothing",
     "mbarrier.arrive.shared::cta=>"
     "mbarrier.arrive.relaxed.cta.shared::cta",
     "nothing orders|nothing says that it has"),
]

DENSE = [
    ("no wgmma.wait_group",
     "wgmma.wait_group=>", "has not been waited for"),
    ("no wgmma.commit_group",
     "wgmma.commit_group=>", "has not been waited for|a wgmma of"),
    ("no wait at any mbarrier",
     "mbarrier.try_wait=>setp.eq.u32 p, 0, 0; // ", UNWAITED),
    ("stages are not released", ARRIVE + "cta=>", "deadlock"),
    ("cp.async is not waited for", "cp.async.wait_all=>", UNWAITED),
    ("no barrier between warps",
     "bar.sync=>", UNWAITED + "|reads it|wrote it|no mbarrier was initialised"),
    ("no __syncwarp() after a warp's wait for copies",
     "bar.warp.sync=>", "of the same warp"),
    ("the dependent grid does not wait",
     "griddepcontrol.wait=>", "griddepcontrol.wait|never written"),
    ("arrivals that release nothing",
     "mbarrier.arrive.shared::cta=>"
     "mbarrier.arrive.relaxed.cta.shared::cta", "nothing orders"),
]

def expert_bugs(image):
    """In the mma kernels of three stages.  The first kernel of the image has barriers
    for the tables of experts, then one in the loop, after the wait for copies."""
    name = os.path.join(KERNELS, image + ".ptx")
    if not os.path.exists(name):
        return []
    with open(name, encoding="utf-8") as file:
        before = file.read().split("cp.async.wait_group")[0]
    loop = before.count("bar.sync") + 1
    return [
        ("copies are not waited for", "cp.async.wait_group=>", UNWAITED),
        ("copies of a step too few are waited for",
         "cp.async.wait_group 1;=>cp.async.wait_group 2;", UNWAITED),
        ("copies make no groups", "cp.async.commit_group=>", UNWAITED),
        ("no barrier after the rows of experts", "bar.sync=>#1",
         UNWAITED + "|wrote it"),
        ("no barrier after the tiles of experts", "bar.sync=>#2",
         UNWAITED + "|wrote it"),
        ("no barrier between the steps", f"bar.sync=>#{loop}",
         UNWAITED + "|copied to it|reads it"),
        ("a stage begins in the one before", ", 9216=>, 8192",
         UNWAITED + "|cp.async to|copied to it"),
        ("rows that A does not have are not zeroed", "st.shared.v4.u32=>#1",
         "never written"),
    ]


# mma_warps.cuh, which has three stages.
WARPS = [
    ("copies are not waited for", "cp.async.wait_group=>", UNWAITED),
    ("copies of a step too few are waited for",
     "cp.async.wait_group 1;=>cp.async.wait_group 2;", UNWAITED),
    ("copies make no groups", "cp.async.commit_group=>", UNWAITED),
    ("lanes do not wait for each other", "bar.warp.sync=>",
     UNWAITED + "|of the same warp"),
    ("no barrier before sums are added", "bar.sync=>", UNWAITED + "|wrote it"),
    ("no copies of scales", "cp.async.cg.shared.global.L2::128B=>", "never written"),
    ("no copies of A", "cp.async.ca.shared.global.L2::128B=>",
     "never written|outside their bound"),
]

# The kernels for dual products have four stages.
DUAL_EXPERTS = [
    ("copies are not waited for", "cp.async.wait_group=>", UNWAITED),
    ("copies of a step too few are waited for",
     "cp.async.wait_group 2;=>cp.async.wait_group 3;", UNWAITED),
    ("copies make no groups", "cp.async.commit_group=>", UNWAITED),
    ("no barriers", "bar.sync=>", UNWAITED + "|copied to it|wrote it|reads it"),
    ("no copies of scales", "cp.async.cg.shared.global.L2::128B=>", "never written"),
]


def experts(op, activations, **environment):
    """A job of the software GPU's device that multiplies four experts."""
    return ([os.environ["NIB"], "check", "--device", "cuda:0", "--op", op, "--packed",
             "--layout", "tiled", "--m", "3,0,1,1", "--n", "1000", "--k", "1280",
             "--activations", activations], {"NIBEMU_SMS": "2", **environment})


def small(job):
    return [PROGRAM, job], {"NIBEMU_SMS": "4"}


# (job, bugs, first seed).  In order, which is seed 0, no grid overlaps the one before.
SETS = {
    "tiles": (small("tiles"), BUGS, 1),
    "skinny": (small("skinny"), SKINNY, 1),
    "warps": (small("warps"), WARPS, 1),
    "wide": (small("wide"), WIDE, 1),
    "dense": (small("dense"), DENSE, 1),
    "experts":
        (experts("moe", "nvfp4", NIB_CUDA_MMA="always"), expert_bugs("sm90_mma"), 0),
    "dual experts of fp16":
        (experts("moe_dual", "fp16", NIB_CUDA_MMA="always"), DUAL_EXPERTS, 0),
    "experts on an A100":
        (experts("moe", "nvfp4", NIBEMU_DEVICE="a100"), expert_bugs("sm80_mma"), 0),
    "dual experts of bf16 on an RTX 4090":
        (experts("moe_dual", "bf16", NIBEMU_DEVICE="rtx4090"), DUAL_EXPERTS, 0),
}


def run(seed, rule, job):
    """The exit code, and what was printed after the device's name."""
    command, environment = job
    env = dict(os.environ, NIBEMU_SEED=str(seed), **environment,
               NIB_CUDA_LIBRARY=os.path.join(BUILD, "libnibemu.so"))
    if rule:
        env["NIBEMU_REPLACE"] = rule
    done = subprocess.run(command, env=env, capture_output=True, text=True,
                          timeout=120, check=False)
    text = done.stdout + done.stderr
    # What a report is about, without the rule that it quotes.
    return done.returncode, re.sub(r"\n  (rule|try|again): [^\n]*", "", text)


def said(text):
    """The report without where: from the opcode on."""
    match = re.search(r"nibemu: ([^\n]*)", text)
    text = match.group(1) if match else text.strip().split("\n")[-1]
    text = re.sub(r"^.*?PTX line \d+(, \S+)?: ", "", text)
    # No part of a word.
    return text if len(text) <= 100 else text[:100].rsplit(" ", 1)[0]


def try_bug(job, first, name, rule, words):
    """True if every schedule reports it with one of the words."""
    found, last = 0, ""
    for seed in range(first, first + SCHEDULES):
        code, text = run(seed, rule, job)
        if code != 0 and re.search(words, text):
            found += 1
            last = text
        else:
            print(f"seed {seed}, {name}: exit code {code}: {text[-600:]}")
    print(f"{name:48} {found} of {SCHEDULES}: {said(last)}")
    return found == SCHEDULES


def main():
    """0, 1, or 77 without kernels."""
    if not os.path.exists(PROGRAM):
        print("skipped: emu_small was not built")
        return 77
    code, text = run(0, None, small("tiles"))
    if code == 77:
        print("skipped:", text.strip())
        return 77
    found = True
    for name, (job, bugs, first) in SETS.items():
        print(f"{name}:")
        for seed in range(SCHEDULES):
            code, text = run(seed, None, job)
            if code != 0:
                print(f"without a bug, seed {seed}: {text}")
                return 1
        print(f"{'none':48} 0 of {SCHEDULES}")
        found = all([try_bug(job, first, *bug) for bug in bugs]) and found
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
