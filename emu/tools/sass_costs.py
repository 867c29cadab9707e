#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sass_costs.py [--ptxas PATH] [--nvdisasm PATH] [--arch sm_90a] [-o FILE] FILE...

Counts the machine instructions of each line of PTX modules, for NIBEMU_TIME: assembles
each module with -lineinfo, disassembles it with the lines of PTX, and writes a table that
NIBEMU_SASS=FILE reads.  A FILE is a module, or a program that nvcc made with
--no-compress, whose modules are extracted.  Needs ptxas and nvdisasm, which the library
does not need.

The table: "module HASH" (64-bit FNV-1a of the module's text), "kernel HASH REGISTERS"
for each of its kernels (of its name; registers of a thread), then for each line of PTX
that has a cost "LINE ISSUE ALU FMA XU STALL": how many machine instructions one execution
of the line issues, how many of them go to the pipes of logic and conversions (ALU), of
integer multiplication and dot products (FMA), and of special functions (XU), and how many
cycles ptxas lets pass after them before the warp's next instruction.  Those are the
latencies that no scoreboard tracks, from the encoding of each instruction.

A basic block of PTX may be several of SASS if ptxas unrolled a loop, and an instruction
may have moved to another block.  Instructions that ptxas neither copies nor removes
(loads, stores, barriers, multiplications of matrices) show which blocks belong together
and how often a block was copied.  An instruction that moved to another block counts
there."""

import argparse
import collections
import re
import statistics
import subprocess
import sys
import tempfile

# PTX and SASS of the instructions that ptxas keeps, one for one.
ANCHORS = [
    (r"ld\.(volatile\.|relaxed\.\w+\.|acquire\.\w+\.)?global", r"LDG"),
    (r"ld\.(volatile\.)?shared", r"LDS\b"),
    (r"st\.(volatile\.|relaxed\.\w+\.|release\.\w+\.)?global", r"STG"),
    (r"st\.(volatile\.)?shared", r"STS"),
    (r"ldmatrix", r"LDSM"),
    (r"stmatrix", r"STSM"),
    (r"wgmma\.mma_async", r"[HQI]GMMA"),
    (r"mma\.sync", r"[HQI]MMA"),
    (r"cp\.async\.c[ag]", r"LDGSTS"),
    (r"cp\.async\.bulk\.(shared|global|tensor)", r"UBLKCP|UTMA"),
    (r"mbarrier\.(try_wait|test_wait)", r"SYNCS\.PHASECHK"),
    (r"mbarrier\.arrive", r"SYNCS\.ARRIVE|ARRIVES"),
    (r"(bar|barrier)\.(sync|arrive|cta)", r"BAR\."),
    (r"shfl", r"SHFL"),
    (r"(atom|red)\.", r"ATOM|RED"),
    (r"tcgen05\.mma", r"UTC[A-Z]MMA"),
    (r"tcgen05\.cp", r"UTCCP"),
    (r"tcgen05\.commit", r"UTCBAR"),
    (r"tcgen05\.ld", r"LDTM"),
    (r"tcgen05\.st", r"STTM"),
    (r"dp4a", r"IDP"),
    (r"ex2", r"MUFU\.EX2"),
]
ANCHORS = [(re.compile(p), re.compile(s)) for p, s in ANCHORS]
ALU = re.compile(
    r"LOP3|SHF|PRMT|IADD3|VIADD|ISETP|FSETP|SEL|FSEL|VIMNMX|IMNMX|FMNMX|LEA|PLOP3|F2FP|"
    r"I2FP|IABS|BMSK|SGXT|P2R|R2P|MOV$|HSETP2|HMNMX2|VABSDIFF|FLO|ISCADD|LOP")
FMA = re.compile(r"IMAD|IDP|HADD2\.F32")
XU = re.compile(r"MUFU|I2F|F2I|F2F|POPC|FRND|BREV|I2I")
SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
WORD = re.compile(r"/\* (0x[0-9a-f]{16}) \*/\s*$")
LINE = re.compile(r'nv_debug_ptx_txt", line (\d+)')
ENDS = re.compile(r"^(BRA|EXIT|RET|BRX|JMP|CALL)\b")


def fnv1a(text):
    """As the library hashes a module's text and a kernel's name."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def anchor_of(opcode):
    """The SASS that one line of PTX becomes once for each copy; None: any."""
    for ptx, sass in ANCHORS:
        if ptx.match(opcode):
            return sass
    return None


def read_ptx(text):
    """Block of each line, and the anchors by line."""
    block, anchors, number = {}, {}, 0
    for line, words in enumerate(text.split("\n"), 1):
        words = words.strip()
        if not words or words.startswith(("//", ".loc", ".reg")):
            continue
        if re.match(r"[\w$]+:|(\.visible |\.weak )*\.(entry|func)\b", words):
            number += 1
        block[line] = number
        for part in re.split(r"[{;]\s*", words):
            opcode = re.sub(r"^@!?%\w+\s+", "", part.strip())
            sass = anchor_of(opcode)
            if sass:
                anchors[line] = sass
            if re.match(r"(bra|ret|exit|brx)\b", opcode):
                number += 1
    return block, anchors


def stall_of(word):
    """Cycles until the warp may issue again: bits 105 to 108 of an instruction."""
    return int(word, 16) >> 41 & 15


def read_sass(text):
    """Blocks: lists of (line of PTX, opcode, stall)."""
    blocks, line = [[]], 0
    rows = text.split("\n")
    for number, row in enumerate(rows):
        found = LINE.search(row)
        if found:
            line = int(found.group(1))
        elif re.match(r"^\.?[\w$.]+:", row):
            blocks.append([])
        else:
            found = SASS.match(row)
            if found:
                word = WORD.search(rows[number + 1])
                blocks[-1].append((line, found.group(1), stall_of(word.group(1))))
                if ENDS.match(found.group(1)):
                    blocks.append([])
    return [b for b in blocks if b]


def owner_of(sass, block, anchors, anchored):
    """The PTX block that a SASS block is a copy of; None: unknown."""
    votes = collections.Counter()
    for line, opcode, _ in sass:
        if line in anchors and anchors[line].match(opcode):
            votes[block[line]] += 1
    if not votes:
        for line, opcode, _ in sass:
            if line in block and block[line] not in anchored:
                votes[block[line]] += 1
    if not votes:
        votes.update(block[line] for line, _, _ in sass if line in block)
    return votes.most_common(1)[0][0] if votes else None


def copies_of(blocks, owners, block, anchors):
    """How often each PTX block was copied."""
    seen = collections.defaultdict(collections.Counter)
    count = collections.Counter(owners)
    for sass in blocks:
        for line, opcode, _ in sass:
            if line in anchors and anchors[line].match(opcode):
                seen[block[line]][line] += 1
    return {b: statistics.median(seen[b].values()) if b in seen else
            1 for b in count if b is not None}


def costs_of(ptx, sass):
    """Costs by line."""
    block, anchors = read_ptx(ptx)
    blocks = read_sass(sass)
    anchored = {block[line] for line in anchors}
    owners = [owner_of(b, block, anchors, anchored) for b in blocks]
    copies = copies_of(blocks, owners, block, anchors)
    first = {}
    for line in sorted(block, reverse=True):
        first[block[line]] = line
    costs = collections.defaultdict(lambda: [0.0] * 5)
    for body, owner in zip(blocks, owners):
        for line, opcode, stall in body:
            if owner is None or opcode.startswith("NOP"):
                continue
            if block.get(line) != owner:
                line = first[owner]
            cost = costs[line]
            share = 1 / copies[owner]
            cost[0] += share
            cost[4] += share * stall
            for k, pipe in enumerate((ALU, FMA, XU), 1):
                if pipe.match(opcode):
                    cost[k] += share
                    break
    return costs


def modules_of(path):
    """The texts of a file: that of a module, or those in a program."""
    with open(path, "rb") as file:
        text = file.read()
    if not text.startswith(b"\x7fELF"):
        return [text.rstrip(b"\0")]
    found = []
    for match in re.finditer(rb"\n\.version \d", text):
        begin = text.rfind(b"\0", 0, match.start()) + 1
        found.append(text[begin:text.index(b"\0", match.start())])
    if not found:
        sys.exit(f"sass_costs.py: {path}: a program without PTX that is not compressed: "
                 "nvcc --no-compress, with code=compute_...")
    return found


def run(command):
    """The output of a tool; ends the program with the tool's message if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"sass_costs.py: {command[0]}: {error.strerror}: CUDA's toolkit has it, and "
                 f"so has pip install nvidia-cuda-nvcc or nvidia-cuda-nvdisasm")
    if done.returncode:
        sys.exit(f"sass_costs.py: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def registers_of(text):
    """Kernels and their registers, from the output of ptxas -v."""
    return re.findall(r"Compiling entry function '([^']+)'.*?Used (\d+) registers", text,
                      re.S)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("files", nargs="+")
    a = parser.parse_args()
    out = sys.stdout if a.output == "-" else open(a.output, "w", encoding="ascii")
    for text in (text for path in a.files for text in modules_of(path)):
        with tempfile.NamedTemporaryFile(suffix=".ptx") as ptx, \
                tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            ptx.write(text)
            ptx.flush()
            kernels = registers_of(run([a.ptxas, f"-arch={a.arch}", "-v", "-lineinfo",
                                        ptx.name, "-o", cubin.name]))
            sass = run([a.nvdisasm, "-c", "-hex", "-gp", cubin.name])
        costs = costs_of(text.decode("utf-8", "replace"), sass)
        print(f"module {fnv1a(text):016x}", file=out)
        for name, registers in kernels:
            print(f"kernel {fnv1a(name.encode()):016x} {registers}", file=out)
        for line in sorted(costs):
            print(line, *(f"{c:.4g}" for c in costs[line]), file=out)
    if out is not sys.stdout:
        out.close()


if __name__ == "__main__":
    main()
