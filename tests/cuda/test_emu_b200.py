#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_emu_b200.py [SCHEDULES [few|all|NAME]] - runs the Blackwell kernels on the
software B200 with one planted bug at a time.  Each must be found on every schedule: by
a report, by wrong values, or by bits that differ from those without the bug.  Prints a
table: the bug, the number of schedules on which it was found, and the report.  Bugs
marked "strict" are found only with NIBEMU_STRICT=1.  "all" uses every processor.  Needs
the kernels (nvcc), no GPU.

A bug is planted in the PTX of the build.  It names the n-th line of an entry that
matches a pattern, because registers have other names after each change of a kernel."""
import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BUILD = os.path.dirname(os.environ["NIB"])
PROGRAM = os.path.join(BUILD, "emu_tiles")
SCHEDULES = int(sys.argv[1]) if len(sys.argv) > 1 else 1
CHOICE = sys.argv[2] if len(sys.argv) > 2 else "few"

PAIR, SINGLE = "nib_gemm_pair_few_sm100", "nib_gemm_single_few_sm100"
DUAL = "nib_dual_pair_few_sm100"
# The kernel that a job of emu_tiles.c runs, where it is not PAIR.
KERNELS = {"single": SINGLE, "singles": SINGLE, "dual": DUAL,
           "dualmoe": DUAL}

WAIT = r"mbarrier\.try_wait\.\S+ p, .*"
PASSES = "setp.eq.u32 p, 0, 0;"
ARRIVE = r"mbarrier\.arrive\.shared::cta.*"
ARRIVE_FAR = r"mbarrier\.arrive\.release\.cluster\.shared::cluster.*"
COMMIT = r"tcgen05\.commit.*"
MASK = r"(tcgen05\.commit\S+ \S+), (%rs\d+);"
COPY = r"tcgen05\.cp\..*"
MMA = r"tcgen05\.mma\..*"
LOAD = r"cp\.async\.bulk\.tensor.*"
AFTER = r"tcgen05\.fence::after_thread_sync;"
BEFORE = r"tcgen05\.fence::before_thread_sync;"
CLUSTER = r"barrier\.cluster\..*"
ELECT = r"elect\.sync _\|p, 0xffffffff;"
INIT = r"mbarrier\.init\.shared::cta\.b64 (\S+), (\S+);"
EXPECT = r"(mbarrier\.arrive)\.expect_tx(\S+ _, \S+), (\S+);"
# An MMA: [d], a, b, shape, [scales of a], [scales of b], accumulate.
ODD = r"ld\.param\.u32\s+(%r\d+), \[%rd1\+36\];"
PARTS = (r"(tcgen05\.mma\.\S+ )\[(\S+)\], (\S+), (\S+), (\S+), "
         r"\[(\S+)\], \[(\S+)\], p;")
# A load: [to], [map, {x, y, z}], [barrier], policy.
BOX = r"(cp\.async\S+ )\[(\S+)\], \[(\S+), \{(\S+), (\S+), (\S+)\}\], (.*)"


def with_value(register, change, text):
    """Lines that use `text` with another register instead."""
    return "{.reg .b32 bug; " + change + " " + text.replace(
        register, "bug") + "}"


def one(pattern, nth, change, of=None):
    """An edit: the nth line that matches; `of` says how many must."""
    return [(pattern, nth, change, of)]


def every(pattern, count, change):
    """An edit of each of `count` lines that match."""
    return [(pattern, i + 1, change, count) for i in range(count)]


def offset(pattern, nth, group, by, of=None):
    """Adds a number to the 32-bit register of a group of the match."""
    def change(m):
        return with_value(m.group(group),
                          f"add.s32 bug, {m.group(group)}, {by};",
                          m.group(0))
    return [(pattern, nth, change, of)]


def late_mma(m, lines):
    """The commit of a stage, with the stage's last MMA after it."""
    mma = [x for x in lines if re.search(MMA, x)][3]
    return ("%s {.reg .pred q; setp.eq.u32 q, 0, 0; %s}" %
            (m.group(0), mma.strip().replace(", p;", ", q;")))


# (bug, job of emu_tiles, edits); "few": also in the small set.
BUGS = [
    # Barriers, and what they count.
    ("no expect_tx, an arrival", "pair", one(EXPECT, 1, r"\1\2;", 1), "few"),
    ("bytes of one CTA of the pair are expected", "pair",
     one(EXPECT, 1, lambda m: "{.reg .b32 bug; shr.u32 bug, " + m.group(3) +
         ", 1; " + m.group(0).replace(m.group(3), "bug") + "}", 1), "few"),
    ("2048 bytes too few expected", "pair", offset(EXPECT, 1, 3, -2048, 1)),
    ("one byte too many expected", "pair", offset(EXPECT, 1, 3, 1, 1)),
    ("both CTAs expect the bytes of the pair", "pair",
     one(r"@(%p\d+) bra\s+(\$\w+);(?=[^@]*mbarrier\.arrive\.expect_tx)", 1, "",
         1)),
    ("loads count at the CTA's own barrier", "pair",
     one(r"and\.b32\s+(%r\d+), (%r\d+), -16777217;", 1, r"mov.b32 \1, \2;",
         2), "few"),
    ("drained is forwarded to the CTA itself", "lag",
     one(r"and\.b32\s+(%r\d+), (%r\d+), -16777217;", 2, r"mov.b32 \1, \2;",
         2)),
    ("mbarriers of stages not initialised", "pair",
     one(INIT, 1, "", 8)),
    ("empty initialised for two arrivals", "ring",
     one(INIT, 2, r"mbarrier.init.shared::cta.b64 \1, 2;", 8)),
    ("drained without the other CTA's arrival", "lag",
     one(INIT, 6, r"mbarrier.init.shared::cta.b64 \1, 4;", 8)),
    ("tiles_empty of five warps", "queue",
     one(INIT, 4, r"mbarrier.init.shared::cta.b64 \1, 5;", 8)),
    ("no barrier of the cluster after mbarrier.init", "pair",
     one(CLUSTER, 1, "", 10) + one(CLUSTER, 2, "", 10)),
    ("no barrier of the cluster after alloc", "pair",
     one(CLUSTER, 3, "", 10) + one(CLUSTER, 4, "", 10), "few"),
    ("no barrier of the cluster at the end", "pair",
     every(CLUSTER, 10, "")[4:]),
    # Waits.
    ("tiles_full not waited for by the epilogue", "lag",
     one(WAIT, 2, PASSES, 13)),
    ("summed not waited for", "lag", one(WAIT, 7, PASSES, 13), "few"),
    ("ready not waited for", "split", one(WAIT, 5, PASSES, 13)),
    ("received not waited for", "split", one(WAIT, 6, PASSES, 13)),
    ("tiles_full not waited for by loads", "lag", one(WAIT, 3, PASSES, 13)),
    ("empty not waited for", "ring", one(WAIT, 4, PASSES, 13), "few"),
    ("tiles_full not waited for by the forwarder", "lag",
     one(WAIT, 8, PASSES, 13)),
    ("drained not waited for by the forwarder", "lag",
     one(WAIT, 9, PASSES, 13)),
    ("tiles_full not waited for by the multiply warp", "lag",
     one(WAIT, 10, PASSES, 13)),
    ("drained not waited for", "overlap", one(WAIT, 11, PASSES, 13)),
    ("full not waited for", "ring", one(WAIT, 13, PASSES, 13)),
    ("slot of scales not waited for", "slots", one(WAIT, 12, PASSES, 13)),
    ("tiles_empty not waited for", "queue", one(WAIT, 1, PASSES, 13)),
    ("drained waited for with the other parity", "lag",
     one(r"(mbarrier\.try_wait\S+ p, \S+), (\S+);", 11,
         r"{.reg .b32 bug; xor.b32 bug, \2, 1; \1, bug;}", 13)),
    ("full waited for with the other parity", "ring",
     one(r"(mbarrier\.try_wait\S+ p, \S+), (\S+);", 13,
         r"{.reg .b32 bug; xor.b32 bug, \2, 1; \1, bug;}", 13)),
    ("summed waited for with the parity of the tile before", "lag",
     one(r"(mbarrier\.try_wait\S+ p, \S+), (\S+);", 7,
         r"{.reg .b32 bug; xor.b32 bug, \2, 1; \1, bug;}", 13)),
    ("waits of split-k acquire nothing", "split",
     one(r"parity\.acquire\.cluster", 2, "parity.relaxed.cluster", 3)),
    # Arrivals.
    ("epilogue releases no tile", "queue", one(ARRIVE, 4, "", 7)),
    ("epilogue releases no accumulators", "lag", one(ARRIVE, 5, "", 7)),
    ("loads release no tile", "queue", one(ARRIVE, 3, "", 7)),
    ("the forwarder releases no tile", "queue", one(ARRIVE, 6, "", 7)),
    ("multiply warp releases no tile", "queue", one(ARRIVE, 7, "", 7)),
    ("first tile not announced", "pair", one(ARRIVE, 1, "", 7)),
    ("later tiles not announced", "lag", one(ARRIVE, 2, "", 7)),
    ("no arrival at received", "split", one(ARRIVE_FAR, 1, "", 2)),
    ("drained not forwarded", "lag", one(ARRIVE_FAR, 2, "", 2)),
    ("arrival at received releases nothing", "split",
     one(r"arrive\.release\.cluster", 1, "arrive.relaxed.cluster", 2)),
    # Commits.
    ("no commit of a stage", "ring", one(COMMIT, 1, "", 3), "few"),
    ("no commit of a slice", "split", one(COMMIT, 2, "", 3)),
    ("no commit of a tile", "pair", one(COMMIT, 3, "", 3)),
    ("commits arrive at one CTA of the pair", "ring",
     every(MASK, 3, r"{.reg .b16 bug; mov.b16 bug, 1; \1, bug;}"), "few"),
    ("commits arrive at the pair of slice 0", "split",
     every(MASK, 3, r"{.reg .b16 bug; mov.b16 bug, 3; \1, bug;}")),
    ("the commit of a stage before its last MMA", "ring",
     one(MMA, 4, "", 4) + one(COMMIT, 1, late_mma, 3)),
    ("summed committed for the other buffer", "lag",
     one(r"(tcgen05\.commit\S+ )\[(%r\d+)\](.*)", 3,
         r"{.reg .b32 bug; xor.b32 bug, \2, 8; \1[bug]\3}", 3)),
    # Fences and registers of tensor memory.
    ("no fence before drained", "overlap", one(BEFORE, 5, "", 7)),
    ("no fence after summed", "lag", one(AFTER, 4, "", 7)),
    ("no fence after drained, nor after full", "lag",
     one(AFTER, 6, "", 7) + one(AFTER, 7, "", 7)),
    ("no tcgen05.wait::ld", "pair",
     every(r"tcgen05\.wait::ld.*", 4, "")),
    ("a warp reads the lanes of warp 0", "pair",
     one(r"and\.b32\s+(%r\d+), %r\d+, 6291456;", 1, r"mov.b32 \1, 0;", 1)),
    # Allocation.
    ("no alloc", "pair", one(r"tcgen05\.alloc.*", 1, "", 1)),
    ("alloc of 256 columns", "overlap",
     one(r"(tcgen05\.alloc\S+ \S+), (\S+);", 1,
         r"{.reg .b32 bug; mov.b32 bug, 256; \1, bug;}", 1)),
    ("no dealloc", "pair", one(r"tcgen05\.dealloc.*", 1, "", 1), "few"),
    ("dealloc before the last barrier", "pair",
     one(r"tcgen05\.dealloc.*", 1, "", 1) +
     [(CLUSTER, 6, lambda m, lines: "{.reg .pred q; .reg .b32 c; "
       "mov.b32 c, 512; setp.ne.s32 q, %s, 5; @!q %s} %s" % (
           re.search(r"setp\.ne\.s32\s+%p\d+, (%r\d+), 5;",
                     "\n".join(lines)).group(1),
           re.sub(r", %r\d+;", ", c;",
                  [x for x in lines if "tcgen05.dealloc" in x][0].strip()),
           m.group(0)), 10)]),
    # Scales.
    ("a copy of B's scales missing", "pair", one(COPY, 3 + 1, "", 12)),
    ("a copy of A's scales missing", "pair", one(COPY, 2, "", 12), "few"),
    ("a copy of A's second block missing", "overlap",
     one(COPY, 3, "", 12)),
    ("scales of A copied four columns off", "pair",
     offset(r"(tcgen05\.cp\S+) \[(\S+)\], (\S+);", 2, 2, 4, 12)),
    ("scales of the k step before", "pair",
     one(r"(tcgen05\.cp\S+ \S+), (%rd\d+);", 4,
         r"{.reg .b64 bug; add.s64 bug, \2, -32; \1, bug;}", 12)),
    ("scales of another stage", "ring",
     one(r"(tcgen05\.cp\S+ \S+), (%rd\d+);", 1,
         r"{.reg .b64 bug; xor.b64 bug, \2, 2048; \1, bug;}", 12)),
    ("scales of A and B exchanged", "pair",
     one(PARTS, 2, r"\1[\2], \3, \4, \5, [\7], [\6], p;", 4)),
    ("the column of A's first row ignored", "shift",
     [(r"add\.s32\s+(%r\d+), (%r\d+), (%r\d+);(?=[^{]*\{[^{]*tcgen05\.mma)",
       1, r"mov.b32 \1, \2;", None)]),
    # Descriptors and the MMA.
    ("codes of A and B exchanged", "pair",
     one(PARTS, 1, r"\1[\2], \4, \3, \5, [\6], [\7], p;", 4)),
    ("no swizzle in the descriptors of codes", "pair",
     one(r"or\.b64\s+(%rd\d+), (%rd\d+), 4611756662049472512;", 1,
         r"or.b64 \1, \2, 70643622084608;", 1)),
    ("groups of rows 512 bytes apart", "pair",
     one(r"or\.b64\s+(%rd\d+), (%rd\d+), 4611756662049472512;", 1,
         r"or.b64 \1, \2, 4611756524610519040;", 1)),
    ("k step of 64 bytes", "pair",
     one(r"(tcgen05\.mma\S+ \S+), (%rd\d+), (.*)", 2,
         r"{.reg .b64 bug; add.s64 bug, \2, 2; \1, bug, \3}", 4)),
    ("a k step twice", "pair",
     one(r"(tcgen05\.mma\S+ \S+), (%rd\d+), (.*)", 3,
         r"{.reg .b64 bug; add.s64 bug, \2, -2; \1, bug, \3}", 4)),
    ("the first step adds to what is there", "lag",
     one(r"(tcgen05\.mma.*), p;", 1,
         r"{.reg .pred q; setp.eq.u32 q, 0, 0; \1, q;}", 4), "few"),
    ("the second step clears", "pair",
     one(r"(tcgen05\.mma.*), p;", 2,
         r"{.reg .pred q; setp.ne.u32 q, 0, 0; \1, q;}", 4)),
    ("each stage clears", "pair",
     one(r"(tcgen05\.mma.*), p;", 1,
         r"{.reg .pred q; setp.ne.u32 q, 0, 0; \1, q;}", 4)),
    ("N of the tile less 16", "pair",
     offset(PARTS, 1, 5, -(2 << 17), 4)),
    ("M of a single CTA", "pair",
     offset(PARTS, 1, 5, -(1 << 27), 4)),
    ("odd accumulators begin at column 0", "lag",
     one(ODD, 2, r"mov.b32 \1, 0;", 2)),
    ("the epilogue reads odd tiles at column 0", "lag",
     one(ODD, 1, r"mov.b32 \1, 0;", 2)),
    ("a later MMA to another column", "pair",
     one(PARTS, 3, r"{.reg .b32 bug; add.s32 bug, \2, 16; "
         r"\1[bug], \3, \4, \5, [\6], [\7], p;}", 4)),
    # Loads.
    ("coordinates of B exchanged", "ring",
     one(BOX, 1, r"\1[\2], [\3, {\5, \4, \6}], \7", 4)),
    ("rows of A from the first", "overlap",
     one(BOX, 3, r"{.reg .b32 bug; mov.b32 bug, 0; "
         r"\1[\2], [\3, {\4, bug, \6}], \7}", 4)),
    ("the matrix of a batch ignored", "ring",
     one(BOX, 3, r"{.reg .b32 bug; mov.b32 bug, 0; "
         r"\1[\2], [\3, {\4, \5, bug}], \7}", 4)),
    ("both CTAs load the same rows of B", "pair",
     one(BOX, 1, r"{.reg .b32 bug; and.b32 bug, \5, -256; "
         r"\1[\2], [\3, {\4, bug, \6}], \7}", 4)),
    ("no load of A's scales", "pair", one(LOAD, 4, "", 4)),
    ("the other CTA loads no rows of A", "pair",
     one(LOAD, 3, lambda m: "{.reg .pred q; .reg .b32 bug; mov.u32 bug, "
         "%cluster_ctarank; and.b32 bug, bug, 1; setp.eq.u32 q, bug, 0; "
         "@q " + m.group(0) + "}", 4), "few"),
    ("the last stage's load of B skipped", "ring",
     one(LOAD, 1, lambda m: "{.reg .pred q; setp.lt.s32 q, " +
         re.search(r"\{(%r\d+),", m.group(0)).group(1) +
         ", 1280; @q " + m.group(0) + "}", 4)),
    ("scales loaded over the codes of A", "pair",
     one(BOX, 2, r"{.reg .b32 bug; add.s32 bug, \2, -2048; "
         r"\1[bug], [\3, {\4, \5, \6}], \7}", 4)),
    # Roles.
    ("32 threads load", "pair", one(ELECT, 3, PASSES, 5)),
    ("32 threads multiply", "pair", one(ELECT, 5, PASSES, 5), "few"),
    ("tiles announced out of turn", "queue",
     one(r"bar\.warp\.sync.*", 4, "", 13)),
    # Split-k.
    ("accumulators sent to slice 0", "split",
     one(r"(mapa\S+ \S+, \S+), (%r\d+);", 1,
         r"{.reg .b32 bug; and.b32 bug, \2, 1; \1, bug;}", 2)),
    ("accumulators sent to the other CTA of the pair", "split",
     one(r"(mapa\S+ \S+, \S+), (%r\d+);", 1,
         r"{.reg .b32 bug; xor.b32 bug, \2, 1; \1, bug;}", 2)),
    ("received only of slice 0", "split",
     one(r"(mapa\S+ \S+, \S+), (%r\d+);", 2,
         r"{.reg .b32 bug; and.b32 bug, \2, 1; \1, bug;}", 2)),
    ("a sum of slices rounded to zero", "split",
     one(r"add\.f32\s+(%f\d+), (%f\d+), (%f\d+);", 1,
         r"add.rz.f32 \1, \2, \3;")),
    # Grids.
    ("the dependent grid does not wait", "pair",
     one(r"griddepcontrol\.wait;", 1, "", 1), "few"),
    ("the product does not wait for staged copies", "staged",
     one(r"griddepcontrol\.wait;", 1, "", 1)),
    # Single CTAs and the dual operation have code of their own.
    ("single CTAs: empty not waited for", "single",
     one(WAIT, 4, PASSES, 11)),
    ("single CTAs: no fence before drained", "single",
     one(BEFORE, 5, "", 6)),
    ("single CTAs: no commit of a stage", "single", one(COMMIT, 1, "", 3)),
    ("dual: scales of B2 not copied", "dual", one(COPY, 2, "", 16)),
    ("dual: B2's codes from B", "dual",
     one(r"(tcgen05\.mma\S+ \S+), (%rd\d+), (.*)", 2,
         r"{.reg .b64 bug; add.s64 bug, \2, -1024; \1, bug, \3}", 8)),
    ("dual: both products to one accumulator", "dual",
     [(PARTS, 2, lambda m, lines: m.group(0).replace(
         "[" + m.group(2) + "]", "[" + re.search(
             PARTS, [x for x in lines if re.search(MMA, x)][0]).group(2) +
         "]"), 8)]),
    ("dual: drained not waited for", "dual", one(WAIT, 11, PASSES, 13)),
    ("MoE: rows counted before the kernel before ends", "moe",
     one(r"griddepcontrol\.wait;", 1, "", 1)),
    ("MoE: drained not waited for", "moe", one(WAIT, 11, PASSES, 13)),
    ("MoE: a box larger than the bytes expected", "moe",
     offset(EXPECT, 1, 3, -1024, 1)),
]


# Changes that are no bugs, which nothing may report.
HARMLESS = [
    # barrier.cluster.arrive.release publishes mbarrier.init, too.
    ("no fence.mbarrier_init", "pair",
     one(r"fence\.mbarrier_init.*", 1, "", 1)),
    # Nothing of the tensor core is under way before the first tile, nor after
    # the last, whose results the epilogue has waited for.
    ("no fence before the barrier after alloc", "pair",
     one(BEFORE, 1, "", 7)),
    ("no fence after the barrier after alloc", "pair",
     one(AFTER, 1, "", 7)),
    ("no fence before dealloc's barrier", "pair", one(BEFORE, 6, "", 7)),
    ("no fence after dealloc's barrier", "pair", one(AFTER, 2, "", 7)),
    # Order is cumulative: the epilogue's fence and the leader's suffice.
    ("no fence before the forwarded arrival", "lag",
     one(BEFORE, 7, "", 7)),
    ("no fence after the drained that is forwarded", "lag",
     one(AFTER, 5, "", 7)),
    # Each of the two stands between drained and the first MMA of a tile.
    ("no fence after drained", "overlap", one(AFTER, 6, "", 7)),
    ("no fence after full", "ring", one(AFTER, 7, "", 7)),
    # No other CTA of a multiprocessor allocates: there is one.
    ("no relinquish of the permit", "pair",
     one(r"tcgen05\.relinquish.*", 1, "", 1)),
]


class Moved(Exception):
    """The PTX is another than a bug was written for."""


def read_ptx():
    """The text of all entries by their names, with the line before them."""
    entries = {}
    for module in ("gemm", "dual"):
        path = os.path.join(BUILD, "nibblas", f"sm100_{module}.ptx")
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        starts = [i for i, x in enumerate(lines) if ".entry" in x]
        for start, end in zip(starts, starts[1:] + [len(lines)]):
            name = re.search(r"\.entry (\w+)", lines[start]).group(1)
            entries[name] = (lines, start, end)
    return entries


def is_code(line):
    """False for labels' debug lines and comments."""
    return not re.match(r"\s*(\.loc|//|$)", line)


def matches_of(pattern, lines, start, end):
    """(line number, match) of the lines that match; patterns that look ahead see
    the next lines of code."""
    ahead = "(?=" in pattern
    found = []
    for i in range(start, end):
        if not is_code(lines[i]):
            continue
        text = lines[i]
        if ahead:
            if not re.search(pattern.split("(?=")[0], text):
                continue
            rest = [x for x in lines[i + 1:min(i + 400, end)] if is_code(x)]
            text = "\n".join([text] + rest)
        match = re.search(pattern, text)
        if match and match.start() < len(lines[i]):
            found.append((i, match))
    return found


def rule_of(edit, entry, edited):
    """The line of NIBEMU_REPLACE that makes an edit; it is made in `edited`."""
    pattern, nth, change, of = edit
    lines, start, end = entry
    found = matches_of(pattern, lines, start, end)
    if of not in (None, len(found)) or nth > len(found):
        raise Moved(f"{len(found)} lines match {pattern}, not {of or nth}")
    at, match = found[nth - 1]
    if change == "":
        new = ""
    elif callable(change):
        wants_lines = change.__code__.co_argcount == 2
        new = (change(match, lines[start:end]) if wants_lines
               else change(match))
    else:
        new = match.expand(change)
    old = match.group(0)
    if new and old != lines[at].strip():
        # Only a part of the line has matched.
        new = lines[at].strip().replace(old, new)
    old = lines[at]
    before = sum(old in x for x in edited[:at])
    edited[at] = new
    return f"{old}=>{new}#{before + 1}"


def rules_of(bug, entries):
    """NIBEMU_REPLACE for all edits of a bug, which are of the lines as they were."""
    entry = entries[KERNELS.get(bug[1], PAIR)]
    edited = list(entry[0])
    return "\n".join(rule_of(e, entry, edited) for e in bug[2])


def run(job, seed, rule, strict):
    """The exit code, the hash or None, and what was printed."""
    env = dict(os.environ, NIBEMU_SEED=str(seed), NIBEMU_SMS="8",
               NIBEMU_DEVICE="b200", NIBEMU_BUDGET="2000000000",
               NIB_CUDA_LIBRARY=os.path.join(BUILD, "libnibemu.so"))
    env.pop("NIBEMU_STRICT", None)
    if rule:
        env["NIBEMU_REPLACE"] = rule
    if strict:
        env["NIBEMU_STRICT"] = "1"
    done = subprocess.run([PROGRAM, job], env=env, capture_output=True,
                          text=True, timeout=300, check=False)
    text = done.stdout + done.stderr
    if "INVALID_PTX" in text or "invalid PTX" in text:
        raise Moved("not PTX: " + text[:400])
    match = re.search(r"^([0-9a-f]{16}) " + job, text, re.M)
    # What a report is about, without the rule that it quotes.
    return done.returncode, match and match.group(1), re.sub(
        r"\n  (rule|try|again): [^\n]*", "", text)


def said(text):
    """The report without where: from the opcode on; else the last line."""
    match = re.search(r"nibemu: ([^\n]*)", text)
    text = match.group(1) if match else text.strip().split("\n")[-1]
    text = re.sub(r"^.*?PTX line \d+, \S+: ", "", text)
    return re.sub(r"^FAIL \w+: ", "", text)[:100]


def count_found(job, rule, right, strict):
    """On how many schedules a bug is found, and what was said last."""
    found, last = 0, ""
    for seed in range(1, 1 + SCHEDULES):
        code, bits, text = run(job, seed, rule, strict)
        if code == 1:
            found, last = found + 1, said(text)
        elif code == 0 and bits != right:
            found, last = found + 1, "other bits"
        elif code != 0:
            raise Moved(f"exit code {code}: {text[-400:]}")
    return found, last


def try_bug(bug, entries, right, is_bug=True):
    """True if every schedule finds it, or none what is no bug; and its row."""
    name, job = bug[:2]
    mark = "" if is_bug else "no bug: "
    try:
        rule = rules_of(bug, entries)
        found, last = count_found(job, rule, right[job], False)
        if found < SCHEDULES:
            more, text = count_found(job, rule, right[job], True)
            if more > found:
                found, last, mark = more, text, "strict: "
    except Moved as error:
        return False, f"{name:52} cannot be planted: {error}"
    return (found == (SCHEDULES if is_bug else 0),
            f"{name:52} {found} of {SCHEDULES}: {mark}{last}")


def main():
    """0, 1, or 77 without kernels."""
    if not os.path.exists(PROGRAM):
        print("skipped: emu_tiles was not built")
        return 77
    bugs, harmless = [[b for b in bugs if CHOICE == "all" or CHOICE in b[0] or
                       CHOICE in b[3:]] for bugs in (BUGS, HARMLESS)]
    jobs = sorted({b[1] for b in bugs + harmless})
    seeds = range(1 + (CHOICE == "all") * SCHEDULES)
    # Each run is a process: a thread only waits for it.
    with ThreadPoolExecutor(os.cpu_count() if CHOICE == "all" else 1) as pool:
        right = {}
        for job, seed, (code, bits, text) in pool.map(
                lambda js: (*js, run(*js, None, js[1] % 2)),
                itertools.product(jobs, seeds)):
            if code == 77:
                print("skipped:", text.strip())
                return 77
            if code != 0 or bits != right.setdefault(job, bits):
                print(f"without a bug, {job}, seed {seed}: {text}")
                return 1
        print(f"{'none':52} 0 of {SCHEDULES}")
        entries = read_ptx()
        all_good = True
        for is_good, row in pool.map(
                lambda bug: try_bug(bug[0], entries, right, bug[1]),
                [(b, True) for b in bugs] + [(b, False) for b in harmless]):
            print(row, flush=True)
            all_good = all_good and is_good
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
