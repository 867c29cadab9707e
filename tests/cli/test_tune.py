#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib tune on the GPU of tests/cuda/fake_cuda, by whose clock launches take as long as
tiles of known costs would."""

import json
import os
import unittest

from cli_common import NibTest, fake_gpu

GPU = fake_gpu()
SIZES = [*range(16, 129, 16), *range(160, 257, 32)]
# tests/cuda/fake_cuda/fake_cuda.h
STEPS = [1000 + 40 * rows for rows in SIZES]
TILE, SPLIT = 40000, 30000


@unittest.skipUnless(GPU, "this build has no GPU kernels")
class Tune(NibTest):
    def setUp(self):
        super().setUp()
        self.env = dict(GPU, XDG_CACHE_HOME=self.folder)
        self.env.pop("NIB_TUNING", None)

    def gpu(self):
        return json.loads(self.nib("info", "--format", "json",
                                   env=self.env).stdout)["gpus"][0]

    def file(self):
        folder = self.path("nibblas")
        name, = os.listdir(folder)
        self.assertRegex(name, r"^tune-NVIDIA-Fake-0-132-[0-9.]+\.json$")
        return os.path.join(folder, name)

    def costs(self):
        """Tunes; the costs that were measured."""
        rows = self.rows("tune", "--quiet", "--keep", "--min-time", "0.02",
                         env=dict(self.env,
                                  LD_PRELOAD=os.environ["FAKE_CUDA"]))
        self.assertEqual([r["cost"] for r in rows],
                         ["64 of k"] * len(SIZES) + ["a tile", "a divided k"])
        self.assertEqual([r["rows"] for r in rows[:-2]], SIZES)
        for row in rows:
            self.assertAlmostEqual(row["change"] + 1, row["cycles"] /
                                   row["before_cycles"])
        return [row["cycles"] for row in rows]

    @unittest.skipIf(os.environ.get("NIB_TEST_SIZE") == "small",
                     "a sanitizer must be the first library")
    def test_costs_are_measured_and_kept(self):
        costs = self.costs()
        for got, want in zip(costs, [*STEPS, TILE, SPLIT]):
            self.assertLess(abs(got / want - 1), 0.02, costs)
        with open(self.file(), encoding="ascii") as file:
            kept = json.load(file)
        self.assertEqual([*kept["step_cycles"], kept["tile_cycles"],
                          kept["split_cycles"]], costs)
        self.assertEqual(kept["tile_rows"], SIZES)
        self.assertIs(self.gpu()["tuned"], True)
        self.assertEqual(self.gpu()["tuning_file"], self.file())

    @unittest.skipIf(os.environ.get("NIB_TEST_SIZE") == "small",
                     "a sanitizer must be the first library")
    def test_costs_that_slow_groups_are_not_kept(self):
        # By this clock every tile of a launch is as long as its largest one,
        # so that groups, which have several sizes, are slower with true costs.
        result = self.nib("tune", "--quiet", "--min-time", "0.02", env=dict(
            self.env, LD_PRELOAD=os.environ["FAKE_CUDA"]))
        self.assertRegex(result.stdout, r"not written: with the measured costs "
                         r"groups of eight take \d+ % longer")
        self.assertEqual(os.listdir(self.folder), [])
        self.assertIs(self.gpu()["tuned"], False)

    def test_reset_and_dry_run(self):
        rows = self.rows("tune", "--reset", "--dry-run", env=self.env)
        self.assertEqual({r["change"] for r in rows}, {0})
        self.assertEqual(os.listdir(self.folder), [])
        self.assertIs(self.gpu()["tuned"], False)
        self.assertIn("no such file", self.gpu()["untuned_reason"])
        text = self.nib("tune", "--reset", env=self.env).stdout
        self.assertIn("written to " + self.file(), text)
        self.assertRegex(text, r"(?m)^64 of k +256 +\d+ cycles +\d+ cycles")
        self.assertIs(self.gpu()["tuned"], True)

    def test_a_wrong_file_is_not_used(self):
        self.nib("tune", "--reset", env=self.env)
        self.write(self.file(), b"{}")
        self.assertIs(self.gpu()["tuned"], False)
        self.assertIn("byte 1", self.gpu()["untuned_reason"])
        result = self.nib("info", env=self.env)
        self.assertRegex(result.stdout, "tile costs +built in, byte 1")
        self.env["NIB_TUNING"] = "off"
        self.assertEqual(self.gpu()["tuning_file"], "")
        result = self.nib("tune", "--reset", env=self.env, code=4)
        self.assertIn("NIB_TUNING", result.stderr)


class NoGpu(NibTest):
    def test_only_gpus_are_tuned(self):
        self.assertIn("a GPU has some", self.nib("tune", "--device", "cpu",
                                               code=4).stderr)
        env = dict(os.environ, NIB_CUDA_LIBRARY="/nonexistent")
        self.assertIn("cuda:0", self.nib("tune", code=4, env=env).stderr)


if __name__ == "__main__":
    unittest.main()
