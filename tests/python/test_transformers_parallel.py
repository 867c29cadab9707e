# SPDX-License-Identifier: Apache-2.0
"""Experts shared by two processes through transformers' DistributedConfig: the logits
of one process, by each implementation; the parts that each process has; what is
refused. On CPUs (gloo), and on GPUs (NCCL) where there are two.  transformers wants
accelerate for it."""

import json
import os
import subprocess
import sys
import unittest

import tiny_models as tiny
from model_test import ModelTest, newest

MOST_SECONDS = 300
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "transformers_ranks.py")
# Name: (family, how it is saved).
MODELS = {"a-qwen3": ("qwen3_moe", {"form": "modelopt", "w4a4": True}),
          "b-mixtral": ("mixtral", {"form": "compressed-tensors"}),
          "c-gpt-oss": ("gpt_oss", {"form": "modelopt"})}


@newest
class ParallelTest(ModelTest):
    @classmethod
    def setUpClass(cls):
        cls.accelerate = os.environ.get("NIBBLAS_ACCELERATE", "")
        if not os.path.isdir(cls.accelerate):
            raise unittest.SkipTest(f"no accelerate: {cls.accelerate or 'not asked'}")

    def run_ranks(self):
        """The lines of both processes, by rank."""
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), self.accelerate])
        env = {**os.environ, "PYTHONPATH": path,
               "OMP_NUM_THREADS": "1",
               "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", "2", PROGRAM, self.folder], env=env, text=True,
            capture_output=True, timeout=MOST_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(x) for x in done.stdout.splitlines() if x[:1] == "{"]

    def check_run(self, row):
        self.assertEqual(row["local"], [2] * len(row["local"]), row)
        self.assertGreaterEqual(len(row["local"]), 4, row)
        if row["device"] == "cuda":
            # Tiles of other sizes add k in another order, and each sum is rounded to
            # bf16.
            self.assertLess(max(row["errors"]), 2e-2, row)
            return
        if row["how"] == "nibblas":
            self.assertTrue(row["same_bits"], row)
        self.assertLess(max(row["errors"]), 1e-6, row)

    def test_two_processes(self):
        for name, (family, how) in MODELS.items():
            folder = os.path.join(self.folder, name)
            os.mkdir(folder)
            packed, _ = tiny.save(tiny.make(family), folder, **how)
            if family == "qwen3_moe":
                # The largest of the others, of all processes, stands in.
                self.edit(packed, lambda tensors: tensors.pop(
                    "model.layers.0.mlp.experts.2.up_proj.input_scale"))
        rows = self.run_ranks()
        runs = [x for x in rows if x["case"] == "run"]
        on_gpus = runs[0]["device"] == "cuda"
        self.assertEqual(len(runs), 2 * (1 if on_gpus else 4) * len(MODELS))
        for row in runs:
            self.check_run(row)
        refused = [x for x in rows if x["case"] == "refuse"]
        self.assertEqual(len(refused), 4)
        for row in refused:
            self.assertIsNotNone(row["error"], row)
            self.assertIn(f"distributed_config: {row['how'][0]} = 2", row["error"])


if __name__ == "__main__":
    unittest.main()
