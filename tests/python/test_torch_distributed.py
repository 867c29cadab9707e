# SPDX-License-Identifier: Apache-2.0
"""nibblas.torch.distributed on 1, 2 and 4 processes of one machine (gloo): "exchange"
gives the bits of one layer, "gather" nearly the same values; uneven and empty ranks; a
rank that fails."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

from common import SOURCE, TorchTest

# A hang would end the test here; nothing is measured.
MOST_SECONDS = 300
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "expert_ranks.py")


class DistributedTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.torch.distributed.is_available():
            raise unittest.SkipTest("torch without torch.distributed")
        global expert_ranks
        import expert_ranks

    def start(self, ranks, folder, case):
        """(exit status, stderr) of each process."""
        env = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
               "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        store = os.path.join(folder, f"store-{ranks}-{case}")
        running = [subprocess.Popen(
            [sys.executable, "-c",
             "import sys, torch.distributed as d, expert_ranks as e\n"
             "init = d.init_process_group\n"
             "d.init_process_group = lambda *a, **k: init(*a, **k, "
             f"init_method='file://{store}', rank={rank}, world_size={ranks})\n"
             f"e.main({folder!r}, {case!r})"],
            env=env, text=True, stderr=subprocess.PIPE,
            cwd=os.path.dirname(PROGRAM)) for rank in range(ranks)]
        try:
            return [(p.returncode, err) for p in running
                    for err in [p.communicate(timeout=MOST_SECONDS)[1]]]
        finally:
            for p in running:
                p.kill()

    def results(self, folder, ranks):
        """{case: y of all ranks together}."""
        parts = {}
        for name in os.listdir(folder):
            if name.endswith(".pt"):
                case, rank = name[:-3].rsplit("-", 1)
                parts.setdefault(case, {})[int(rank)] = self.torch.load(
                    os.path.join(folder, name))
        for case, found in parts.items():
            self.assertEqual(len(found), ranks, case)
        return {case: self.torch.cat([found[r] for r in range(ranks)])
                for case, found in parts.items()}

    def check(self, ranks):
        with tempfile.TemporaryDirectory() as folder:
            for status, err in self.start(ranks, folder, "run"):
                self.assertEqual(status, 0, err)
            found = self.results(folder, ranks)
        self.assertEqual(len(found), 20)
        for case, y in found.items():
            quantized, mode, _, _, dtype = case.split("-")
            x, ids, weights = expert_ranks.tokens(
                self.torch.bfloat16 if "bfloat16" in dtype else self.torch.float32)
            want = expert_ranks.experts(quantized == "True")(x, ids, weights)
            self.assertGreater(want.abs().max(), 0)
            # bf16 as it is may be summed by vdpbf16ps, in another order for few rows.
            is_exact = quantized == "True" or "bfloat16" not in dtype
            if ranks == 1 or (mode == "exchange" and is_exact):
                self.assertTrue(self.torch.equal(y, want), (ranks, case))
                continue
            # A partial sum of each rank is rounded to y's type.
            step = 2.0 ** (-8 if "bfloat16" in dtype else -23)
            limit = (ranks + 1) * step * want.abs().max().item()
            self.assertLessEqual((y - want).abs().max().item(), limit, case)

    def test_one_process(self):
        self.check(1)

    def test_two_processes(self):
        self.check(2)

    def test_four_processes(self):
        self.check(4)

    def test_a_rank_that_fails_ends_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            *others, last = self.start(3, folder, "fail")
        self.assertIn("this rank fails", last[1])
        for status, err in others:
            self.assertNotEqual(status, 0)
            self.assertRegex(err, "Error")

    def torchrun(self, *program):
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", "2", *program], text=True, capture_output=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, timeout=MOST_SECONDS,
            check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_example(self):
        said = self.torchrun(os.path.join(SOURCE, "examples",
                                          "expert_parallel.py")).splitlines()
        self.assertEqual(len(said), 4, said)
        for line in said:
            if "exchange" in line:
                self.assertIn("same bits as one process: True", line)

    def test_the_measurement(self):
        """It runs, and finds its own results right; times are not looked at."""
        said = self.torchrun(
            os.path.join(SOURCE, "bench", "expert_parallel.py"), "--shapes", "small",
            "--tokens", "3", "--rounds", "1")
        rows = [json.loads(line) for line in said.splitlines()]
        self.assertEqual(sum("check" in row for row in rows), 8)
        self.assertEqual(sum("us" in row for row in rows), 5 + 2)
        self.assertEqual(sum("gb_s" in row for row in rows), 2)

    def test_many_numbers_of_tokens(self):
        """What an object keeps is bounded; x has any strides."""
        from nibblas.torch.distributed import ExpertParallel
        t = self.torch
        whole = expert_ranks.experts(True)
        x, ids, weights = (t.cat([part] * 3) for part in expert_ranks.tokens(t.float32))
        turned = x.t().contiguous().t()
        want = whole(x, ids, weights)
        self.assertTrue(t.equal(whole(turned, ids, weights), want))
        with self.one_rank():
            for mode, capacity, most in (("gather", len(x), 3), ("gather", None, 64),
                                         ("exchange", None, 5)):
                ep = ExpertParallel(None, mode, capacity)
                for n in range(1, len(x)):
                    y = ep(whole, turned[:n], ids[:n], weights[:n],
                           expert_ranks.EXPERTS)
                    self.assertTrue(t.equal(y, want[:n]), (mode, n))
                self.assertLessEqual(len(ep.kept), most, mode)

    @contextlib.contextmanager
    def one_rank(self):
        dist = self.torch.distributed
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                                    rank=0, world_size=1)
            try:
                yield
            finally:
                dist.destroy_process_group()

    def test_calls_of_a_layer(self):
        """Each call of torch costs a host some microseconds, more than a GPU needs for
        it.  Views are not counted."""
        from torch.utils._python_dispatch import TorchDispatchMode
        from nibblas.torch.distributed import ExpertParallel

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if not any(x.alias_info is not None and not x.alias_info.is_write
                           for x in function._schema.arguments):
                    calls.append(str(function))
                return function(*args, **(kwargs or {}))

        with self.one_rank():
            x, ids, weights = expert_ranks.tokens(self.torch.bfloat16)
            for mode, most in (("exchange", 25), ("gather", 12)):
                ep, calls = ExpertParallel(None, mode), []
                part = ep.shard(expert_ranks.experts(True))
                ep(part, x, ids, weights, expert_ranks.EXPERTS)
                with Count():
                    ep(part, x, ids, weights, expert_ranks.EXPERTS)
                self.assertIn("nibblas.moe.default", calls)
                self.assertLessEqual(len(calls), most, calls)

    def test_refusals(self):
        from nibblas.torch.distributed import ExpertParallel
        torch = self.torch
        with self.one_rank():
            self.refused("mode = 'all'", ExpertParallel, None, "all")
            self.refused("rows = 'fp8'", ExpertParallel, rows="fp8")
            self.refused("capacity = 3", ExpertParallel, capacity=3)
            ep = ExpertParallel(None, "gather", 20)
            part = ep.shard(expert_ranks.experts(False))
            x, ids, weights = expert_ranks.tokens(torch.bfloat16)
            self.refused("x: 24 tokens", ep, part, x, ids, weights, 10)
            ep = ExpertParallel()
            self.refused("experts: 10 from 0 on", ep, part, x, ids, weights, 12)
            self.refused("topk_ids", ep, part, x, ids[1:], weights, 10)


if __name__ == "__main__":
    unittest.main()
