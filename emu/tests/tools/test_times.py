#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_times.py - the tools of predicted time without a compiler or a GPU: sass_costs.py
reads issues, pipes and stalls of a block that was copied, and compare_times.py compares
microseconds and cycles."""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def tool(name):
    """A tool as a module."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PTX = """.visible .entry k()
{
add.u32 %r1, %r2, %r3;
ld.shared.u32 %r4, [%r1];
ret;
}
"""
# The block of line 3 and 4 twice: ptxas unrolled it.
BLOCK = """.L_x_0:
	//## File "nv_debug_ptx_txt", line 3
        /*0000*/                   IADD3 R1, R2, R3, RZ ;    /* 0x0000000302017210 */
                                                             /* 0x000fca0007ffe0ff */
	//## File "nv_debug_ptx_txt", line 4
        /*0010*/                   LDS R4, [R1] ;            /* 0x0000000001047984 */
                                                             /* 0x000e240000000800 */
"""


class SassCosts(unittest.TestCase):
    def test_stall(self):
        self.assertEqual(tool("sass_costs").stall_of("0x000fca0007ffe0ff"), 5)
        self.assertEqual(tool("sass_costs").stall_of("0x000fe20000000000"), 1)

    def test_registers(self):
        said = ("ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                "    0 bytes stack frame, 0 bytes spill stores\n"
                "ptxas info    : Used 168 registers, used 2 barriers\n")
        self.assertEqual(tool("sass_costs").registers_of(said + said.replace("'k'", "'m'")),
                         [("k", "168"), ("m", "168")])

    def test_costs_of_copies(self):
        costs = tool("sass_costs").costs_of(PTX, BLOCK + BLOCK.replace("L_x_0", "L_x_1"))
        self.assertEqual(costs[3], [1, 1, 0, 0, 5])
        self.assertEqual(costs[4], [1, 0, 0, 0, 2])

    def test_tool_that_is_not_there(self):
        with self.assertRaisesRegex(SystemExit, "no/such/ptxas: No such file.*toolkit"):
            tool("sass_costs").run(["/no/such/ptxas"])

    def test_modules_of_programs(self):
        modules_of = tool("sass_costs").modules_of
        one, two = b"\n.version 9.0\nA", b"//\n\n.version 8.7\nB"
        with tempfile.NamedTemporaryFile() as file:
            file.write(one + b"\0")
            file.flush()
            self.assertEqual(modules_of(file.name), [one])
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\x7fELF\0\1" + one.join([b"\0", b"\0\0"]) + two + b"\0x")
            file.flush()
            self.assertEqual(modules_of(file.name), [one, two])
        with self.assertRaisesRegex(SystemExit, "--no-compress"):
            modules_of(sys.executable)


class TimeVariants(unittest.TestCase):
    """The variants that are tried on each device."""

    def test_devices(self):
        variants = tool("time_variants").variants_of
        hopper, blackwell = variants("emu:h200"), variants("emu:b200")
        self.assertEqual({v[0] for v in hopper}, {"gemm"})
        self.assertTrue(all(v[1] for v in hopper))
        self.assertEqual({v[0] for v in blackwell}, {"gemm", "dual_gemm", "group_gemm"})
        self.assertEqual(sum(v[1] == 0 for v in blackwell), 11)

    def test_costs_leave_one_way(self):
        costs = tool("time_variants").costs("a", 148, "1", 128, 1, False)["step_cycles"]
        self.assertEqual([s for s in costs if s < 900000], [400])
        group = tool("time_variants").costs("a", 148, "1", 128, 1, True)["step_cycles"]
        self.assertEqual(sum(s < 900000 for s in group), 8)


class CompareTimes(unittest.TestCase):
    def rows(self, folder, name, key, times, **more):
        path = folder / name
        path.write_text("\n".join(json.dumps(
            {"op": "gemm", "shape": f"{k}x1x1", "backend": "cuda-sm90",
             "plan": "GEMM on", "predicted": key == "predicted_us", key: time, **more})
            for k, time in enumerate(times, 1)))
        return path

    def run_tool(self, *options):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            predicted = self.rows(folder, "p", "predicted_us", [11, 20, 30])
            measured = self.rows(folder, "m", "time_s", [10e-6, 20e-6, 40e-6])
            other = self.rows(folder, "o", "time_s", [1, 1, 1], activations="bf16")
            return subprocess.run(
                [sys.executable, TOOLS / "compare_times.py", *options, "--predicted",
                 predicted, "--measured", measured, other], capture_output=True, text=True,
                check=True).stdout

    def test_microseconds(self):
        text = self.run_tool()
        self.assertIn("| gemm 3x1x1 | 30.0 | 40.0 | -25 % |", text)
        self.assertIn("3 rows: median error 10 %, worst 25 %, Spearman 1.000, "
                      "right order 3 of 3", text)

    def test_order_counts_pairs_that_differ(self):
        right_order = tool("compare_times").right_order
        self.assertEqual(right_order([(1, 10), (2, 10.4), (3, 9)]), (0, 2))
        self.assertEqual(right_order([(1, 10), (2, 12), (3, 11)]), (2, 3))

    def test_held_out_is_half(self):
        is_held_out = tool("compare_times").is_held_out
        held = sum(is_held_out(("gemm", f"{m}x64x64", "nvfp4")) for m in range(200))
        self.assertTrue(70 < held < 130)

    def test_cycles(self):
        text = self.run_tool("--clocks", "2", "1")
        self.assertIn("| gemm 1x1x1 | 22.0 | 10.0 | +120 % |", text)


class TimeVariants(unittest.TestCase):
    def test_emulator_beside_nib(self):
        variants = tool("time_variants")
        with tempfile.TemporaryDirectory() as folder:
            nib = pathlib.Path(folder).resolve() / "nib"
            asked = argparse.Namespace(nib=str(nib), emulator=None)
            with self.assertRaisesRegex(SystemExit, "libnibemu.so does not exist"):
                variants.emulator_of(asked)
            (nib.parent / "libnibemu.so").touch()
            self.assertEqual(variants.emulator_of(asked), str(nib.parent / "libnibemu.so"))


if __name__ == "__main__":
    unittest.main()
