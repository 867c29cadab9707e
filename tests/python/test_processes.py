# SPDX-License-Identifier: Apache-2.0
"""The package in processes of other programs: workers forked after a product,
OMP_NUM_THREADS=1, many threads, layers that are pickled to another process."""

import concurrent.futures
import copy
import os
import pickle
import subprocess
import sys
import textwrap
import unittest

import nibblas
import numpy as np
from common import TorchTest

# Far less than a hang, far more than the work.
MOST_SECONDS = 120


def script(text, **env):
    """What a process of its own says; fails if it does not end well."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)],
                          env={**os.environ, **env}, text=True,
                          capture_output=True, check=False, timeout=MOST_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


class Processes(unittest.TestCase):
    PRODUCT = """
        import os, zlib
        import numpy as np, nibblas
        x = np.random.default_rng(1).standard_normal((96, 512)).astype("f")
        q = nibblas.quantize(x)
        def product(threads=4):
            device = nibblas.device("cpu", threads=threads)
            weights = nibblas.pack(*q[:2], device=device)
            return zlib.crc32(nibblas.gemm(*q[:2], weights).tobytes())
        """

    def test_one_thread_of_openmp(self):
        """As torchrun sets it: the same bits, and no more threads than that."""
        text = textwrap.dedent(self.PRODUCT) + (
            "print(product(0), nibblas.device('cpu').info()['threads'])\n")
        many, one = script(text), script(text, OMP_NUM_THREADS="1")
        self.assertEqual(one, [many[0], "1"])

    def test_fork_after_a_product(self):
        text = textwrap.dedent(self.PRODUCT) + textwrap.dedent("""
            want = product()
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    os._exit(0 if product() == want else 1)
                assert os.waitpid(child, 0)[1] == 0
            assert product() == want
            """)
        script(text)

    def test_many_threads(self):
        rng = np.random.default_rng(2)
        inputs = [nibblas.quantize(rng.standard_normal((7, 64)).astype(np.float32))
                  for _ in range(8)]
        want = [nibblas.gemm(*q[:2], *q[:2]) for q in inputs]

        def work(i):
            for _ in range(50):
                q = inputs[i]
                if not np.array_equal(nibblas.gemm(*q[:2], *q[:2]), want[i]):
                    return False
            return True
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(work, range(8))))


class OfTorch(TorchTest):
    def test_threads_of_torch(self):
        """Products run on the threads that torch's loops have; they start no others, in
        a fork threads of their own."""
        if not self.torch.backends.openmp.is_available():
            self.skipTest("this torch has no OpenMP")
        script("""
            import os, torch, nibblas.torch
            torch.set_num_threads(3)
            ops = torch.ops.nibblas
            w = torch.randn(2048, 512)
            torch.randn(1 << 20).exp()
            threads = len(os.listdir("/proc/self/task"))
            q = ops.quantize(w)
            # Not by torch's own loops, which hang in a fork.

            def product():
                c = ops.gemm(*q[:2], *q[:2])
                return c.view(torch.int16).numpy().tobytes()
            want = product()
            assert len(os.listdir("/proc/self/task")) == threads
            child = os.fork()
            if child == 0:
                os._exit(0 if product() == want else 1)
            assert os.waitpid(child, 0)[1] == 0
            """)

    def test_workers_of_a_data_loader(self):
        """They are forked, after the model of the parent has multiplied."""
        self.assertEqual(script("""
            import torch, nibblas.torch
            torch.set_num_threads(4)
            layer = nibblas.torch.Linear.from_linear(torch.nn.Linear(64, 32))
            x = torch.randn(6, 64)
            with torch.inference_mode():
                want = layer(x[:1])
            class Rows(torch.utils.data.Dataset):
                def __len__(self):
                    return 8
                def __getitem__(self, i):
                    torch.set_num_threads(4)
                    with torch.inference_mode():
                        return layer(x[:1])[0]
            for batch in torch.utils.data.DataLoader(
                    Rows(), 4, num_workers=2, multiprocessing_context="fork"):
                assert torch.equal(batch, want.expand(4, 32))
            with torch.inference_mode():
                assert torch.equal(layer(x[:1]), want)
            print("ok")
            """), ["ok"])

    def test_layers_are_pickled_and_copied(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        x = t.randn(3, 64)
        want = ours(x)
        text = pickle.dumps(ours)
        for one in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(text)):
            self.assertTrue(t.equal(one(x), want))
            self.assertNotEqual(one._packed.number, ours._packed.number)
        again = subprocess.run(
            [sys.executable, "-c", "import pickle, sys, torch\n"
             "layer, x = pickle.load(sys.stdin.buffer)\n"
             "sys.stdout.buffer.write(pickle.dumps(layer(x)))"],
            input=pickle.dumps((ours, x)), capture_output=True, check=True)
        self.assertTrue(t.equal(pickle.loads(again.stdout), want))


if __name__ == "__main__":
    unittest.main(verbosity=2)
