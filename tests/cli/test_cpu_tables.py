#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of CPU runs by tools/results_table.py."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TABLE = os.path.join(os.environ["NIB_SOURCE_DIR"], "tools", "results_table.py")


def table(*args):
    return subprocess.run([sys.executable, TABLE, *args], check=True, text=True,
                          capture_output=True).stdout


class CpuTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def test_cpu(self):
        """A line for each number of threads, with rates; the list under the table has
        machine, command, limits, versions and what was not measured."""
        def ours(threads, time_s, **keys):
            return dict(op="gemm", shape="8x64x64", name="H1", backend="cpu-avx2",
                        threads=threads, activations="nvfp4", time_s=time_s,
                        gflops=100.25, gbps=9.96, fraction_of_limit=0.5, ok=True,
                        limit_kind="vpmaddubsw", date="2026-01-02", version="0.2.0",
                        machine="EPYC", processors=2.0, others_busy=0.25, **keys)
        def other(name, threads, time_s, **keys):
            return dict(ours(threads, time_s, **keys), backend="baseline:" + name,
                        ok=None, version="oneDNN 3")
        rows = [ours(1, 1e-3), other("onednn-bf16", 1, 3e-3),
                other("onednn-f32", 1, 4e-3), ours(2, 5e-4),
                other("onednn-bf16", 2, 2e-3),
                dict(other("ggml", 2, None), skipped="not built"),
                dict(ours(2, 5e-4), op="gemv", shape="7x7x1", name="Y1",
                     limit_kind="read bandwidth", fraction_of_limit=1.1,
                     limit_note="partly in caches"),
                dict(op="peak", shape="read bandwidth", backend="cpu", threads=2,
                     gbps=30.0)]
        self.write("r.json", json.dumps(rows).encode())
        path = os.path.join(self.folder, "r.json")
        recorded = table("--record", path, "--run", "nib bench")
        self.write("r.json", recorded.encode())
        lines = [re.split(r" *\| *", line) for line in
                 table(path, "--cpu").splitlines()]
        self.assertEqual(lines[0], ["", "problem", "threads", "nibblas", "of limit",
                                    "onednn-bf16", "onednn-f32", ""])
        self.assertEqual(lines[2:5], [
            ["", "gemm 8x64x64", "1", "100 GFLOP/s", "50 % of vpmaddubsw", "3.00x",
             "4.00x", ""],
            ["", "gemm 8x64x64", "2", "100 GFLOP/s", "50 % of vpmaddubsw", "4.00x",
             "", ""],
            ["", "gemv 7x7x1", "2", "10.0 GB/s",
             "110 % of read bandwidth (partly in caches)", "", "", ""]])
        self.assertEqual([line[0] for line in lines[6:]], [
            "- 2026-01-02, EPYC, nib 0.2.0; `nib bench`",
            "- Other programs used 0.2 of 2 processors (median of the rows).",
            "- Measured limits in GFLOP/s, GOP/s or GB/s: read bandwidth 30.0 "
            "(2 threads)",
            "- Baselines: onednn-bf16, onednn-f32 (oneDNN 3). A ratio is the "
            "baseline's time over nibblas's; their weights were expanded beforehand.",
            "- Not measured: ggml for H1: not built"])
        short = table(path, "--cpu-short").splitlines()
        self.assertEqual(len([x for x in short if x.startswith("|")]), 4)
        self.assertNotIn("onednn-f32", short[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
