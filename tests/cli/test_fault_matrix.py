#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of nib under every fault of its surroundings: a message, the right
exit status, nothing lost (an old output file stays whole) and nothing left."""

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from cli_common import (NIB, NibTest, is_instrumented, nib, save, save_sparse,
                        tensor, without_override)
from cli_model import K, checkpoint

LAYER = "model.layers.0.mlp.gate_proj"
QUICK = ["--min-time", "0.001"]
# A small run of each command.
COMMANDS = {
    "info": ["info"],
    "plan": ["plan", "--shape", "8x16x32", "--gflops", "1", "--gbps", "1"],
    "check": ["check", "--shape", "8x16x32"],
    "bench": ["bench", "--shape", "5x16x32", "--threads", "1", "--samples",
              "3", "--quiet", *QUICK],
    "report": ["report", "rows.json", "-o", "page.html", "--force"],
    "demo": ["demo", "--preset", "small", "-o", "page.html", "--threads", "1",
             "--quiet", *QUICK],
    "quantize": ["quantize", "in", "new", "--force"],
    "inspect": ["inspect", "in"],
    "verify": ["verify", "in", "in"],
    "repair": ["repair", "in", "mended", "--force"],
    "run": ["run", "--weights", "out", "--tensor", LAYER, "--input", "x",
            "--output", "y", "--force"],
    "selftest": ["selftest", "--quick", "--quiet", "-o", "self.json", "--force"],
    "tune": ["tune"],
    "completion": ["completion", "man"],
    "help": ["help"],
}
OUTPUTS = {"report": "page.html", "demo": "page.html", "quantize": "new",
           "repair": "mended", "run": "y", "selftest": "self.json"}
INPUTS = {"report": "rows.json", "quantize": "in", "inspect": "in",
          "verify": "in", "repair": "in", "run": "x"}
PRECIOUS = b"what was there before"
# No GPU is asked for: nib tune fails as it should.
STATUS = {"tune": 4}
ENVIRONMENT = dict(os.environ, NIB_CUDA_LIBRARY="/nonexistent/libcuda.so")

# Its runtime keeps a signal until the program's next call that it knows, and
# lets no handler of SIGBUS mend the page.
LATE_SIGNALS = "ThreadSanitizer delivers signals late"


class Matrix(NibTest):
    @classmethod
    def setUpClass(cls):
        cls.files = tempfile.mkdtemp(prefix="nib-test-")
        cls.addClassCleanup(shutil.rmtree, cls.files)
        save(os.path.join(cls.files, "in"), checkpoint())
        save(os.path.join(cls.files, "x"),
             {"x": tensor("F32", (2, K), [1 + i % 7 for i in range(2 * K)])})
        for args in (["quantize", "in", "out"],
                     [*COMMANDS["bench"], "--format", "json"]):
            result = nib(*args, cwd=cls.files)
            assert result.returncode == 0, result.stderr
        with open(os.path.join(cls.files, "rows.json"), "w",
                  encoding="utf-8") as file:
            file.write(result.stdout)

    def setUp(self):
        # Two minutes under ThreadSanitizer, for files of one thread.
        if is_instrumented([b"tsan"]) and "interrupted" not in self.id():
            self.skipTest("faults of files are no races")
        super().setUp()
        for name in os.listdir(self.files):
            shutil.copy(os.path.join(self.files, name), self.folder)
        for name in set(OUTPUTS.values()):
            self.write(name, PRECIOUS)
        self.before = sorted(os.listdir(self.folder))

    def start(self, args, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("env", ENVIRONMENT)
        return subprocess.Popen([NIB, *args], cwd=self.folder, **options)

    def run_command(self, args, **options):
        with self.start(args, **options) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out or b"", (err or b"").decode()

    def check(self, command, got, code, says=None):
        """The status, a message, and the files.  Returns the output file's data."""
        status, _, err = got
        self.assertEqual((command, status), (command, code), err)
        if says:
            self.assertRegex(err, r"(?m)^nib( \w+)?: .*(%s)" % says)
        self.assertEqual(sorted(os.listdir(self.folder)), self.before)
        for name in set(OUTPUTS.values()):
            data = self.read(name)
            if name != OUTPUTS.get(command):
                self.assertEqual(data, PRECIOUS)
        return self.read(OUTPUTS[command]) if command in OUTPUTS else PRECIOUS

    def each(self, names=COMMANDS):
        for name in names:
            for output in set(OUTPUTS.values()):
                self.write(output, PRECIOUS)
            yield name, COMMANDS[name], STATUS.get(name, 0)

    @staticmethod
    def closed(fd):
        return lambda: os.close(fd)

    def test_a_run_without_faults(self):
        for name, args, code in self.each():
            data = self.check(name, self.run_command(args), code,
                              "this build has no|no NVIDIA" if code else None)
            self.assertEqual(name in OUTPUTS, data != PRECIOUS)

    def test_every_command_is_here(self):
        listed = re.findall(r"^  ([a-z]+)  +\S", nib("help").stdout, re.M)
        self.assertEqual(set(listed), set(COMMANDS))

    def whole(self, name, data):
        """A new output: a whole file, of no other stream's text."""
        if name in ("quantize", "repair", "run"):
            self.assertEqual(data[8:9], b"{")
            size = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + size])
            self.assertEqual(len(data), 8 + size + max(
                t["data_offsets"][1] for key, t in header.items()
                if key != "__metadata__"))
        elif name == "selftest":
            self.assertEqual(json.loads(data)["format"], "nibblas selftest 1")
        elif name in OUTPUTS:
            self.assertRegex(data, rb"(?is)^<!doctype html.*</html>\s*$")

    def test_closed_stdin(self):
        for name, args, code in self.each():
            got = self.run_command(args, stdin=None, preexec_fn=self.closed(0))
            self.whole(name, self.check(name, got, code))
        got = self.run_command(["report", "-", "-o", "page.html", "--force"],
                               stdin=None, preexec_fn=self.closed(0))
        self.assertEqual(self.check("report", got, 3, "-: "), PRECIOUS)

    def test_closed_stdout(self):
        for name, args, code in self.each():
            got = self.run_command(args, stdout=None, preexec_fn=self.closed(1))
            self.whole(name, self.check(
                name, got, code or 4,
                None if code else "cannot write to standard output"))

    def test_closed_stderr(self):
        for name, args, code in self.each():
            got = self.run_command(args, stderr=None, preexec_fn=self.closed(2))
            self.whole(name, self.check(name, got, code))
        got = self.run_command(["inspect", "absent"], stderr=None,
                               preexec_fn=self.closed(2))
        self.check("inspect", got, 3)

    def test_all_three_closed(self):
        """With progress that would write into the file."""
        for name, args, _ in self.each(OUTPUTS):
            got = self.run_command(args, stdin=None, stdout=None, stderr=None,
                                   preexec_fn=lambda: os.closerange(0, 3))
            self.whole(name, self.check(name, got, 4))

    def test_stdout_on_a_full_disk(self):
        for name, args, code in self.each():
            with open("/dev/full", "wb") as full:
                got = self.run_command(args, stdout=full)
            self.whole(name, self.check(
                name, got, code or 4,
                None if code else "cannot write to standard output"))

    def test_reader_gone(self):
        for name, args, code in self.each():
            reader, writer = os.pipe()
            os.close(reader)
            got = self.run_command(args, stdout=writer)
            os.close(writer)
            self.whole(name, self.check(name, got, code or 4))
            self.assertEqual(got[2] == "", not code, got[2])

    @unittest.skipIf(is_instrumented([b"tsan"]),
                     "ThreadSanitizer maps a file longer than the limit")
    def test_output_onto_a_full_disk(self):
        """A limit of a file's size, as a full disk would be."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
        for name, args, _ in self.each(OUTPUTS):
            got = self.run_command(args, preexec_fn=limit)
            self.assertEqual(self.check(name, got, 4, "large|space"), PRECIOUS)

    def test_read_only_folder(self):
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        for name, args, code in self.each():
            got = self.run_command(args, preexec_fn=without_override)
            if name not in OUTPUTS:
                self.check(name, got, code)
            else:
                self.assertEqual(self.check(name, got, 4, "denied"), PRECIOUS)

    def test_unwritable_temporary_folder(self):
        env = dict(ENVIRONMENT, TMPDIR="/nonexistent")
        for name, args, code in self.each():
            got = self.run_command(args, env=env)
            self.whole(name, self.check(name, got, code))

    def test_input_cut_short_before(self):
        for name, args, _ in self.each(INPUTS):
            data = self.read(INPUTS[name])
            for size in (0, 5, len(data) // 2, len(data) - 3):
                self.write(INPUTS[name], data[:size])
                got = self.run_command(args)
                self.assertEqual(self.check(name, got, 3, INPUTS[name]),
                                 PRECIOUS)
            self.write(INPUTS[name], data)

    def big_inputs(self):
        """Inputs of half a gigabyte, which take a while to read."""
        save_sparse(self.path("in"), 1 << 15, 1 << 13, "w.weight")
        save_sparse(self.path("x"), 1 << 21, K, "x")

    def wait_for(self, process, ready):
        end = time.monotonic() + 60
        while not ready(process.pid) and process.poll() is None:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)

    def maps(self, name):
        """Whether the process has mapped the file, and looked into it."""
        def look(pid):
            try:
                with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
                    text = file.read()
            except (FileNotFoundError, ProcessLookupError):
                return False
            found = re.search(r" %s\n(?:.*\n)*?Rss: +(\d+) kB" % re.escape(
                self.path(name)), text)
            return found and int(found[1]) > 1000
        return look

    @unittest.skipIf(is_instrumented((b"tsan",)), LATE_SIGNALS)
    def test_input_cut_short_while_it_is_read(self):
        for name, args, _ in self.each(["quantize", "inspect", "verify", "repair",
                                      "run"]):
            self.big_inputs()
            with self.start(args) as process:
                self.wait_for(process, self.maps(INPUTS[name]))
                os.truncate(self.path(INPUTS[name]), 4096)
                out, err = process.communicate(timeout=120)
            got = process.returncode, out, err.decode()
            self.assertEqual(self.check(name, got, 3,
                                        "an input file got shorter"), PRECIOUS)

    def interrupt(self, name, args, ready, number=signal.SIGINT, **options):
        # On a busy machine a command may end before the signal reaches it.
        for _ in range(5):
            for output in set(OUTPUTS.values()):
                self.write(output, PRECIOUS)
            with self.start(args, **options) as process:
                self.wait_for(process, ready)
                process.send_signal(number)
                out, err = process.communicate(timeout=120)
            got = process.returncode, out, err.decode()
            if process.returncode != 0:
                break
        self.assertEqual(self.check(name, got, 128 + number, "interrupted"),
                         PRECIOUS)

    @unittest.skipIf(is_instrumented((b"tsan",)), LATE_SIGNALS)
    def test_interrupted_while_reading(self):
        for name, args, _ in self.each(["quantize", "inspect", "verify", "repair",
                                      "run"]):
            self.big_inputs()
            for number in ([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
                           if name in ("quantize", "repair") else [signal.SIGINT]):
                self.interrupt(name, args, self.maps(INPUTS[name]), number)

    @unittest.skipIf(is_instrumented((b"tsan",)), LATE_SIGNALS)
    def test_interrupted_while_it_waits(self):
        """For input of a pipe; or for a reader of its output."""
        def sleeps(pid):
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/syscall", encoding="utf-8") as file:
                call = file.read().split()[0]
            return fields[0] == "S" and call in ("0", "1")
        self.interrupt("report", ["report", "-", "-o", "page.html", "--force"],
                       sleeps, stdin=subprocess.PIPE)
        for name, args, code in self.each(set(COMMANDS) - set(OUTPUTS)):
            if code:  # it has no output
                continue
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            os.write(writer, bytes(4096))
            self.interrupt(name, args, sleeps, stdout=writer)
            os.close(reader)
            os.close(writer)

    def test_interrupted_while_computing(self):
        def computes(pid):
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
            return int(fields[11]) > 20  # clock ticks of user time
        for name, args in (
                ("check", ["check", "--shape", "512x4096x4096", "--rows", "0"]),
                ("bench", [*COMMANDS["bench"][:-1], "60"]),
                ("demo", [*COMMANDS["demo"][:-1], "60"])):
            self.interrupt(name, args, computes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
