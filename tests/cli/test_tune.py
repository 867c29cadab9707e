#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib tune on the fake GPU of tests/cuda/fake_cuda, on whose clock launches take as
long as tiles of known costs would."""

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
                         ["k64 step"] * len(SIZES) + ["tile", "split-k"])
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
        self.assertRegex(text, r"(?m)^k64 step +256 +\d+ cycles +\d+ cycles")
        self.assertIs(self.gpu()["tuned"], True)

    def tuned(self, **env):
        """The GPU as nib info says with this environment."""
        self.env.update(env)
        return self.gpu()

    def test_kept_costs_plan(self):
        """What the file has is what the command plans by."""
        args = ("plan", "--device", "cuda:0", "--shape", "256x16896x4096",
                "--gflops", "1", "--gbps", "1")
        self.nib("tune", "--reset", env=self.env)
        tasks = []
        with open(self.file(), encoding="ascii") as file:
            kept = json.load(file)
        for size in (0, len(SIZES) - 1):
            kept["step_cycles"] = [1 if i == size else 10**6
                                   for i in range(len(SIZES))]
            self.write(self.file(), json.dumps(kept).encode())
            self.assertIs(self.gpu()["tuned"], True)
            tasks.append(self.rows(*args, env=self.env)[0]["tasks"])
        self.assertEqual(tasks, [16 * 66, 66])

    def test_where_files_are(self):
        version = self.nib("--version").stdout.split()[1]
        name = f"nibblas/tune-NVIDIA-Fake-0-132-{version}.json"
        gpu = self.gpu()
        self.assertEqual(gpu["tuning_file"], self.path(name))
        self.assertEqual(gpu["untuned_reason"], "there is no such file")
        mine = self.path("mine.json")
        self.assertEqual(self.tuned(NIB_TUNING=mine)["tuning_file"], mine)
        self.nib("tune", "--reset", env=self.env)
        self.assertIs(self.gpu()["tuned"], True)
        self.assertEqual(os.listdir(self.folder), ["mine.json"])
        # An empty one is none; a cache folder must be absolute.
        gpu = self.tuned(NIB_TUNING="", XDG_CACHE_HOME="cache",
                         HOME=self.folder)
        self.assertEqual(gpu["tuning_file"],
                         self.path(os.path.join(".cache", name)))
        for env, says in (
                ({"NIB_TUNING": "off"}, "NIB_TUNING is 'off'"),
                ({"NIB_TUNING": "x" * 2000},
                 "NIB_TUNING has 2000 bytes, at most 1023"),
                ({"NIB_TUNING": "", "HOME": "home"},
                 "neither XDG_CACHE_HOME nor HOME is an absolute path"),
                ({"HOME": "/" + "x" * 2000}, "or it is too long")):
            gpu = self.tuned(**env)
            self.assertEqual((gpu["tuned"], gpu["tuning_file"]), (False, ""))
            self.assertIn("no file is looked for: ", gpu["untuned_reason"])
            self.assertIn(says, gpu["untuned_reason"])
            # Before anything is measured.
            result = self.nib("tune", env=self.env, code=4)
            self.assertIn(says, result.stderr)
            self.assertIn("cuda:0", result.stderr)

    def test_a_wrong_file_is_not_used(self):
        self.nib("tune", "--reset", env=self.env)
        right = self.read(self.file()).decode()
        cases = (
            (right, "", "line 1 of the file: '[' or '{' expected"),
            ("{", "", "line 2 of the file"),
            ("Fake 0", "Fake 1", "of another GPU"),
            (": 132", ": 131", "of another GPU"),
            ('version": "', 'version": "9', "of another version"),
            ('revision": 5', 'revision": 999999', "of another version"),
            ("16,", "17,", "of other tiles"),
            ("16,", "", "of other tiles"),
            ("365", "1, 365", "of other tiles"),
            ("365,", "365.5,", "of other tiles"),
            ("365,", "0,", "costs.step_cycles[0] = 0: must be 1 to 1000000"),
            ("365,", "1000001,", "costs.step_cycles[0] = 1000001: must be"),
            ("365,", "-365,", "costs.step_cycles[0] = 0: must be"),
            ("365,", "4294967661,", "costs.step_cycles[0] = 0: must be"),
            ('tile_cycles": 1500', 'tile_cycles": 0', "costs.tile_cycles = 0"),
            ('tile_cycles": 1500', 'tile_cycles": "1"', "Expected integer"),
            ("tile_cycles", "hue_cycles", "tile_cycles"),
            ("tile_cycles", "split_cycles", "duplicate object key"),
            (' "tile_cycles": 1500,\n', "", "not found: tile_cycles"),
            ('"tile_rows"', '"more": 1, "tile_rows"', "left unpacked: more"),
            ("}\n", "} x", "end of file expected"),
            ("}\n", "", "'}' expected"),
            (right, right + 4096 * " ", "over 4096 bytes"),
        )
        for part, instead, reason in cases:
            with self.subTest(part=part[:20], instead=instead[:20]):
                self.assertIn(part, right)
                self.write(self.file(),
                           right.replace(part, instead, 1).encode())
                gpu = self.gpu()
                self.assertIs(gpu["tuned"], False)
                self.assertIn(reason, gpu["untuned_reason"])
        self.write(self.file(), b"{}")
        result = self.nib("info", env=self.env)
        self.assertRegex(result.stdout,
                         "tile costs +built in, the file: Object item not")
        # Over an existing file, however wrong it is.
        self.nib("tune", "--reset", env=self.env)
        self.assertEqual(self.read(self.file()).decode(), right)
        self.assertIs(self.gpu()["tuned"], True)

    def test_a_file_that_cannot_be_written(self):
        folder = self.path("nibblas")
        path = self.gpu()["tuning_file"]
        os.makedirs(path)
        self.assertIn("cannot be read", self.gpu()["untuned_reason"])
        result = self.nib("tune", "--reset", env=self.env, code=4)
        self.assertIn(path + ": Is a directory", result.stderr)
        self.assertEqual(os.listdir(folder), [os.path.basename(path)])
        os.rmdir(path)
        os.rmdir(folder)
        self.write("nibblas", b"a file")
        result = self.nib("tune", "--reset", env=self.env, code=4)
        self.assertIn("Not a directory", result.stderr)
        self.assertEqual(self.read("nibblas"), b"a file")


class NoGpu(NibTest):
    def test_only_gpus_are_tuned(self):
        self.assertIn("a GPU has some", self.nib("tune", "--device", "cpu",
                                               code=4).stderr)
        env = dict(os.environ, NIB_CUDA_LIBRARY="/nonexistent")
        self.assertIn("cuda:0", self.nib("tune", code=4, env=env).stderr)


if __name__ == "__main__":
    unittest.main()
