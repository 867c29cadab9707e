#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command nib without files: help, arguments, formats, shapes, exit codes."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import unittest

from cli_common import (NIB, NibTest, fake_gpu, nib, open_terminal, read_csv, save,
                        tensor)

COMMANDS = re.findall(r"^  ([a-z]+)  +\S", nib("help").stdout, re.M)
ISAS = [backend["backend"][4:] for backend in json.loads(
    nib("info", "--format", "json").stdout)["backends"]
        if backend["open"] and backend["backend"].startswith("cpu-")]


def with_nib():
    """The environment of a shell that finds nib."""
    return dict(os.environ, PATH=os.path.dirname(os.path.abspath(NIB)) +
                os.pathsep + os.environ["PATH"])


def on_terminal(args, **env):
    """What nib prints on a terminal."""
    ours, theirs = open_terminal()
    with subprocess.Popen([NIB, *args], stdout=theirs, stderr=theirs,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, **env}) as process:
        os.close(theirs)
        seen = b""
        try:
            while True:
                seen += os.read(ours, 4096)
        except OSError:  # they closed their side
            os.close(ours)
        process.wait(timeout=60)
    return seen.decode()


def options_of(command):
    return re.findall(r"^  (?:-\w, |    )(--[a-z0-9-]+)",
                      nib("help", command).stdout, re.M)


class Help(NibTest):
    def test_overview_lists_the_commands(self):
        for name in ("info plan check quantize inspect verify run "
                     "completion help").split():
            self.assertIn(name, COMMANDS)
        # What a model needs comes before measurements.
        order = [COMMANDS.index(x) for x in ("quantize", "run", "info", "bench")]
        self.assertEqual(order, sorted(order))
        self.assertEqual(self.nib("--help").stdout, self.nib("help").stdout)

    def test_no_arguments_is_a_usage_error(self):
        result = self.nib(code=2)
        self.assertEqual(result.stdout, "")
        self.assertIn("usage: nib COMMAND", result.stderr)

    def test_version(self):
        self.assertRegex(self.nib("--version").stdout,
                         r"^nib \d+\.\d+\.\d+\n$")

    def test_every_command_explains_itself(self):
        for name in COMMANDS:
            text = self.nib(name, "--help").stdout
            self.assertIn("usage: nib " + name, text)
            self.assertEqual(text, self.nib("help", name).stdout)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 90, line)

    def test_examples_in_help_are_nib_commands(self):
        for name in ("check", "plan", "quantize", "inspect", "verify", "run"):
            text = self.nib(name, "--help").stdout
            self.assertRegex(text, r"Examples:\n  nib %s " % name)

    def test_exit_codes_are_documented(self):
        text = self.nib("help", "exit-codes").stdout
        for code in "01234":
            self.assertRegex(text, r"(?m)^%s  " % code)

    def test_mistyped_names_get_a_suggestion(self):
        self.refused("cheek", code=2, says="did you mean nib check")
        self.refused("help", "quantise", code=2, says="did you mean nib quantize")
        self.refused("check", "--preet", "small", code=2,
                     says="did you mean --preset")
        self.refused("check", "--thr=2", code=2, says="did you mean --threads")
        for word in ("inspet", "inspecct", "instect", "insp"):
            self.refused(word, code=2, says="did you mean nib inspect")
        for words in (["zzzzzz"], ["help", "zzzzzz"]):
            self.refused(*words, code=2, says="nib help lists them")


class ManAndCompletion(NibTest):
    def test_man_page_has_every_command_and_option(self):
        page = self.nib("completion", "man").stdout.replace("\\-", "-")
        for name in COMMANDS:
            at = page.index(".SS nib %s " % name)
            end = page.find("\n.SS ", at + 1)
            section = page[at:end if end > 0 else len(page)]
            for option in options_of(name):
                if option != "--help":
                    self.assertIn("\\fB%s\\fR" % option, section)
        for name in ("NIB_CPU", "NIB_TUNING", "NIB_CUDA_LIBRARY", "NO_COLOR",
                     "XDG_CACHE_HOME", "OMP_WAIT_POLICY"):
            self.assertIn(".TP\n\\fB%s\\fR" % name, page)

    def complete(self, *words):
        script = self.path("nib.bash")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.nib("completion", "bash").stdout)
        command = ("source %s; COMP_WORDS=(nib %s); COMP_CWORD=%d; _nib; "
                   'printf "%%s\\n" "${COMPREPLY[@]}"') % (
                       shlex.quote(script),
                       " ".join(shlex.quote(w) for w in words), len(words))
        result = subprocess.run(["bash", "-c", command], capture_output=True,
                                text=True, check=True, cwd=self.folder,
                                env=with_nib(), timeout=60)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completion(self):
        self.assertEqual(self.complete("insp"), ["inspect"])
        self.assertEqual(set(self.complete("")),
                         set(COMMANDS) | {"--help", "--version"})
        self.assertEqual(self.complete("check", "--lay"), ["--layout"])
        self.assertEqual(self.complete("check", "--layout", ""),
                         ["linear", "tiled"])
        self.assertEqual(self.complete("check", "--preset", "s"),
                         ["seeds", "small"])
        for command in ("check", "plan", "run"):
            self.assertEqual(self.complete(command, "--activations", ""),
                             ["nvfp4", "bf16", "fp16", "fp32", "int8"])
        self.assertIn("--activations", self.complete("bench", "--a"))
        self.assertEqual(self.complete("help", "exit"), ["exit-codes"])
        self.write("some.safetensors", b"")
        self.assertEqual(self.complete("inspect", "some"),
                         ["some.safetensors"])
        self.assertEqual(self.complete("run", "--weights", "some"),
                         ["some.safetensors"])
        for name in COMMANDS:
            self.assertEqual(set(self.complete(name, "--")),
                             set(options_of(name)) | {"--help"})


    def test_bash_completion_of_values(self):
        self.assertEqual(self.complete("check", "--layout", "=", "t"),
                         ["tiled"])
        self.assertEqual(self.complete("run", "--out", "f"), ["fp32", "fp16"])
        self.write("a b", b"")
        self.assertEqual(self.complete("run", "-o", "a"), ["a", "b"])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        self.assertEqual(self.complete("check", "--rows", ""), [])
        self.assertEqual(self.complete("nonsense", ""), [])

    def test_words_say_what_they_mean(self):
        """One a line, after a tab: what zsh and fish show."""
        words = self.nib("completion", "words", "--", "run", "--").stdout
        self.assertIn("\n--force\treplace the output file", words)
        words = self.nib("completion", "words", "--", "").stdout
        self.assertIn("inspect\tlist a checkpoint's tensors", words)
        self.refused("completion", "bash", "x", code=2, says="one argument")
        self.refused("completion", "tcsh", code=2, says="bash, zsh, fish or")

    def shell(self, name, *args):
        if not shutil.which(name):
            self.skipTest(name + " is not installed")
        with open(self.path("_nib"), "w", encoding="utf-8") as file:
            file.write(self.nib("completion", name).stdout)
        result = subprocess.run([name, *args], capture_output=True, text=True,
                                cwd=self.folder, env=with_nib(), check=False,
                                timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_zsh_completion(self):
        self.shell("zsh", "-n", "_nib")
        # The script's words, without a terminal: compadd and _describe print.
        out = self.shell("zsh", "-f", "-c", """
            compdef() { : }
            _describe() { print -rl -- ${(P)2} }
            _files() { print files }
            . ./_nib
            for words in "nib insp" "nib check --lay" "nib check --layout ''" \
                    "nib inspect ''" "nib run --weights x"; do
                words=("${(@Q)${(z)words}}") CURRENT=$#words
                _nib
            done""")
        self.assertIn("inspect:list a checkpoint's tensors", out)
        self.assertIn("--experts:moe\\: experts", out)
        self.assertIn("linear\ntiled\nfiles\nfiles\n", out)

    def test_fish_completion(self):
        self.shell("fish", "--no-execute", "_nib")
        out = self.shell("fish", "--no-config", "-c", """
            source _nib
            touch some.safetensors
            complete -C 'nib insp'
            complete -C 'nib check --layout '
            complete -C 'nib inspect some'""")
        self.assertRegex(out, r"(?m)^inspect\tlist a checkpoint's tensors")
        self.assertRegex(out, r"(?m)^linear\ntiled$")
        self.assertIn("some.safetensors", out)

    def test_exit_codes_of_the_man_page(self):
        page = self.nib("completion", "man").stdout.replace("\\-", "-")
        at = page.index(".SH EXIT STATUS")
        text = page[at:page.index("\n.SH ", at)]
        self.assertEqual(re.findall(r"\.TP\n\\fB(.*)\\fR\n", text),
                         ["0", "1", "2", "3", "4", "129, 130, 143"])


class Arguments(NibTest):
    def test_short_options(self):
        base = ("run", "--weights", "w", "--tensor", "t", "--input", "x")
        for word in ("-o=y", "-oy"):
            self.refused(*base, word, code=2, says=re.escape(
                f"{word}: -o must be a separate word; "
                "write -o FILE or --output=FILE"))
        self.refused("inspect", "-q=1", "x", code=2,
                     says="-q=1: -q must be a separate word; write -q or --quiet$")

    def test_one_default_type_of_c(self):
        """But nib check's: the bound of fp32 is the narrowest."""
        for command, default in (("plan", "bf16"), ("bench", "bf16"),
                                 ("run", "bf16"), ("check", "fp32")):
            self.assertRegex(
                re.sub(r"\s+", " ", self.nib(command, "--help").stdout),
                r" --out [^-]*\[default: %s\]" % default)

    def test_usage_errors(self):
        for args, says in [
                ("--shape 128x7168", "gemm takes MxNxK"),
                ("--shape 1x1x16x1x1", "gemm takes MxNxK"),
                ("--shape -1x1x16", "gemm takes MxNxK"),
                ("--shape 1x1x", "gemm takes MxNxK"),
                ("--shape 1x1x16,", "gemm takes MxNxK"),
                ("--shape 99999999999999999999x1x16", "at most 2\\^40"),
                ("--shape 1099511627777x1x16", "at most 2\\^40"),
                ("--shape 1x1x16+1x1x16", "gemm takes MxNxK"),
                ("--op moe --shape 1x2x16", "moe takes --m --n --k"),
                ("--op gemv --shape 1x2x3x4", "gemv takes MxK"),
                ("--op nope --shape 1x1x16", "must be one of gemm"),
                ("--shape 16x16x16x0", "xL must be 1 or more"),
                ("--op dual_gemm --shape 16x16x16x0", "xL must be 1 or more"),
                ("--op gemv --shape 16x32x0", "xL must be 1 or more"),
                ("--m 1 --n 1", "--k is missing"),
                ("--m 8:4+1 --n 8 --k 16", "a range goes up"),
                ("--m 0:4*2 --n 8 --k 16", "a range goes up"),
                ("--m 1:4+0 --n 8 --k 16", "a range goes up"),
                ("--m 1:4-1 --n 8 --k 16", "not a number"),
                ("--m x --n 8 --k 16", "not a number"),
                ("--m 1,,2 --n 8 --k 16", "not a number"),
                ("--m 1:99999999+1 --n 8 --k 16", "a list of more than"),
                ("--shape 5x5x17", "multiple of 16"),
                ("--shape 5x5x0", "multiple of 16"),
                ("--shape 5x5x1048592", "1048576"),
                ("--preset nope",
                 "seeds, cpu, small, decode, prefill, experts, balanced, ampere "
                 "or amx"),
                ("--activations fp8 --shape 1x1x16",
                 "must be one of nvfp4.bf16.fp16.fp32.int8"),
                ("--preset cpu --op dual_gemm", "has no dual_gemm"),
                ("--op quantize --shape 4x16", "must be one of gemm"),
                ("--op group_gemm --m 1 --n 1 --k 16 --batch 2", "no batch"),
                ("--threads -1 --shape 1x1x16", "between 0 and 4096"),
                ("--threads 1.5 --shape 1x1x16", "not a whole number"),
                ("--isa avx3 --shape 1x1x16", "must be one of scalar"),
                ("--format yaml --shape 1x1x16", "must be one of text"),
                ("--quiet=1 --shape 1x1x16", "takes no value"),
                ("--shape", "needs a value"),
                ("--nope", "not an option"),
                ("-x", "not an option"),
                ("foo --shape 1x1x16", "one argument too many"),
                ("--device emu:x --shape 1x1x16", "--device emu:x: "),
                ("", "needs shapes")]:
            with self.subTest(args):
                self.refused("check", *shlex.split(args), code=2, says=says)

    def test_messages_are_of_options(self):
        """Not of the library's arguments."""
        for args, code, says in [
                ("check --device foo --shape 1x1x16", 4, "nib check: "
                 "--device 'foo': this build has no such backend"),
                ("plan --op quantize --shape 4x16", 2, "must be one of gemm"),
                ("plan", 2, "needs shapes"),
                ("bench --out int8", 2,
                 "--out int8: not one of fp32|fp16|bf16"),
                ("bench --layout x", 2, "not one of linear|tiled"),
                ("bench --activations bf16,x", 2,
                 "--activations x: not one of nvfp4|bf16|fp16|fp32|int8"),
                ("run --weights w --tensor t --input x --output y "
                 "--activations bf16 --saturate", 2,
                 "--saturate: A is quantised only with --activations nvfp4"),
                ("bench --isa x", 2, "not one of scalar|"),
                ("bench --threads 0", 2, "not one of 1 to 1024"),
                ("bench --out " + ",".join(17 * ["fp16"]), 2,
                 "--out: more than 16 values"),
                ("bench --device emu:h200 --peaks", 2,
                 "a GPU in software cannot be timed"),
                ("bench --device emu:rtx5090 --shape 1x1x16", 2,
                 "there is no table of times to predict with"),
                ("tune --device emu:h200", 2,
                 "a GPU in software cannot be timed")]:
            with self.subTest(args):
                self.refused(*args.split(), code=code, says=re.escape(says))
        missing = sorted({"scalar", "avx2", "avxvnni", "avx512bw",
                          "avx512vnni", "amx"} - set(ISAS))
        if missing:
            self.refused("check", "--shape", "1x1x16", "--isa", missing[0],
                         code=4, says="^nib check: --isa " + missing[0])

    @unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
    def test_bench_of_the_software_gpu_predicts(self):
        folder = os.path.dirname(os.path.abspath(NIB))
        if not os.path.exists(os.path.join(folder, "libnibemu.so")):
            self.skipTest("no libnibemu.so next to nib")
        row = self.rows("bench", "--device", "emu:h200", "--op", "gemm",
                        "--shape", "4x64x64")[0]
        self.assertIs(row["predicted"], True)
        self.assertIsNone(row["time_s"])
        self.assertGreater(row["predicted_us"], 0)
        self.assertEqual(len(row["grids"]), 1)
        # A kernel that begins before the previous one ends.
        chain = self.rows("bench", "--device", "emu:h100", "--op", "gemm",
                          "--shape", "4x64x64", "--chain", "2")[0]
        self.assertEqual(len(chain["grids"]), 1)
        self.assertEqual(chain["chain"], 2)
        self.assertIn("--chain 2", chain["command"])
        self.assertLess(chain["predicted_us"], row["predicted_us"])
        self.assertIs(self.rows("bench", "--shape", "1x1x16", "--op", "gemm",
                                "--min-time", "0.001")[0]["predicted"], False)

    def test_too_large_is_no_crash(self):
        self.refused("check", "--shape", "99999999x99999999x1048576", code=4,
                     says="no memory for .* of operands, this machine has")
        self.refused("plan", "--shape", "900000x900000x1048576", "--gflops",
                     "1", "--gbps", "1", code=4, says="memory")

    def test_missing_files(self):
        self.refused("quantize", "only.safetensors", code=2,
                     says="needs IN OUT")
        self.refused("inspect", code=2, says="needs PATH")
        self.refused("inspect", "absent.safetensors", code=3,
                     says="No such file")
        self.refused("verify", "absent", "absent", code=3,
                     says="No such file")
        self.refused("run", code=2, says="needs --weights")

    def test_options_end_at_two_dashes(self):
        self.refused("inspect", "--", "--brief", code=3, says="No such file")


class Output(NibTest):
    @unittest.skipUnless(hasattr(os, "sched_setaffinity"), "needs Linux")
    def test_info_shows_nodes_and_affinity(self):
        allowed = os.sched_getaffinity(0)
        one = min(allowed)
        os.sched_setaffinity(0, {one})
        try:
            about = json.loads(self.nib("info", "--format", "json").stdout)
            text = self.nib("info").stdout
        finally:
            os.sched_setaffinity(0, allowed)
        self.assertEqual(about["affinity"], str(one))
        self.assertRegex(text, r"(?m)^affinity +%d$" % one)
        nodes = about["numa_nodes"]
        for node in nodes:
            self.assertRegex(text, r"(?m)^NUMA node %d +processors %s, allowed " % (
                node["node"], node["processors"]))
        if nodes:
            self.assertEqual([n["allowed"] for n in nodes if n["allowed"]], [str(one)])

    def test_info_report_names_build_and_environment(self):
        env = dict(os.environ, NIB_PLANTED="one=two", OMP_NUM_THREADS="2",
                   HOME_OF_A_SECRET="hidden", NIB_BYTES=b"\xff")
        text = self.nib("info", "--report", env=env).stdout
        about = json.loads(self.nib("info", "--report", "--format", "json",
                                    env=env).stdout)
        self.assertEqual(about["environment"]["NIB_PLANTED"], "one=two")
        self.assertEqual(about["environment"]["NIB_BYTES"], "(not UTF-8)")
        self.assertRegex(text, r"(?m)^NIB_PLANTED +one=two$")
        self.assertRegex(text, r"(?m)^OMP_NUM_THREADS +2$")
        self.assertRegex(about["compiler"], r"(?i)(gcc|clang) .*\d")
        for key in ("compiler", "distribution"):
            self.assertIn(about[key], text)
        self.assertNotIn("hidden", text)
        self.assertNotIn("environment", json.loads(
            self.nib("info", "--format", "json").stdout))

    @unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
    def test_info_lists_gpus(self):
        env = fake_gpu()
        gpu, = json.loads(self.nib("info", "--format", "json",
                                   env=env).stdout)["gpus"]
        self.assertEqual(gpu, {
            "name": "cuda:0", "reason": "", "hardware": "NVIDIA Fake 0",
            "backend": "cuda-sm90", "cuda_version": "13.0",
            "compute_capability": "9.0", "memory_bytes": 1 << 30,
            "features": "compute capability 9.0, CUDA 13.0 driver",
            "l2_bytes": 60 << 20, "multiprocessors": 132,
            "clock_khz": 1980000, "memory_clock_khz": 3201000,
            "memory_bus_bits": 6144, "tuned": False, "tuning_file": "",
            "untuned_reason": "no file is looked for: NIB_TUNING is 'off'"})
        self.assertRegex(
            self.nib("info", env=env).stdout,
            r"(?m)^cuda:0 +NVIDIA Fake 0, 132 multiprocessors at up to 1.98 "
            r"GHz, L2 60.0 MiB, memory 1.0 GiB at 3.20 GHz")

    def test_info_says_why_the_gpu_backend_is_closed(self):
        env = dict(os.environ, NIB_CUDA_LIBRARY="/nonexistent/libcuda.so")
        about = json.loads(self.nib("info", "--format", "json",
                                    env=env).stdout)
        backend, = [r for r in about["backends"] if r["backend"] == "cuda-sm90"]
        self.assertFalse(backend["open"])
        self.assertRegex(backend["reason"], "no NVIDIA driver|without nvcc")
        self.assertEqual(about["gpus"], [])

    def test_info(self):
        env = dict(os.environ)
        env.pop("OMP_NUM_THREADS", None)
        about = json.loads(self.nib("info", "--format", "json",
                                    env=env).stdout)
        self.assertEqual(about["threads"], len(os.sched_getaffinity(0)))
        self.assertIn(about["backend"][4:], ISAS)
        self.assertEqual(about["backends"][-1],
                         {"backend": "cpu-scalar", "open": True, "reason": ""})
        rows = read_csv(self.nib("info", "--format", "csv").stdout)
        self.assertIn({"what": "backend cpu-scalar", "value": "open"}, rows)
        self.assertIn({"what": "l1_data_bytes",
                       "value": str(about["l1_data_bytes"])}, rows)
        self.assertEqual([row["value"] for row in rows if row["what"] ==
                          "backend"], [about["backend"]])
        self.assertIn("| version", self.nib("info", "--format", "md").stdout)
        self.assertRegex(self.nib("info").stdout, r"(?m)^memory +\d")

    def test_a_closed_backend_says_why(self):
        environment = dict(os.environ, NIB_CPU="scalar")
        about = json.loads(self.nib("info", "--format", "json",
                                    env=environment).stdout)
        self.assertEqual(about["backend"], "cpu-scalar")
        for backend in about["backends"]:
            self.assertEqual(backend["open"], backend["reason"] == "")
        bad = dict(os.environ, NIB_CPU="sse9")
        result = self.nib("info", "--format", "json", env=bad, code=2)
        self.assertIn("NIB_CPU = 'sse9'", result.stderr)
        self.assertEqual([r["backend"] for r in json.loads(result.stdout)["backends"]
                          if r["open"] and "cpu" in r["backend"]],
                         ["cpu-" + isa for isa in ISAS])

    def test_formats_agree(self):
        args = ("check", "--op", "gemm", "--shape", "3x5x32", "--packed")
        row = self.rows(*args)[0]
        self.assertEqual(row["arithmetic"], "blocks")
        jsonl = self.nib(*args, "--format", "jsonl").stdout
        self.assertEqual(jsonl.count("\n"), 1)
        for key in ("op", "shape", "backend", "layout", "out", "error", "bound",
                    "ok", "version", "machine", "repro"):
            self.assertEqual(json.loads(jsonl)[key], row[key])
        table = read_csv(self.nib(*args, "--format", "csv").stdout)[0]
        self.assertEqual(list(table), list(row))
        self.assertEqual(float(table["error"]), row["error"])
        lines = self.nib(*args, "--format", "md").stdout.splitlines()
        cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
        self.assertEqual(cells[:2], ["gemm", "3x5x32"])
        self.assertTrue(all(len(line) == len(lines[0])
                            for line in lines[:2]))

    def test_notes_are_no_rows_of_markdown(self):
        for args in (("check", "--preset", "small"),
                     ("plan", "--shape", "1x1x16", "--gflops", "1", "--gbps",
                      "1")):
            text = self.nib(*args, "--format", "md").stdout
            self.assertRegex(text, r"\|\n\n[^|]")
            self.assertNotRegex(text, r"\|\n[^|\n]")

    def test_text_has_no_trailing_blanks_or_colours(self):
        for args in (("info",), ("check", "--preset", "small")):
            text = self.nib(*args).stdout
            self.assertNotRegex(text, r"(?m)[ \t]$")
            self.assertNotIn("\033", text)

    def test_colours(self):
        args = ("check", "--shape", "1x1x16", "--packed")
        self.assertIn("\033[1m", on_terminal(args, TERM="xterm", NO_COLOR=""))
        for env in ({"TERM": "dumb", "NO_COLOR": ""},
                    {"TERM": "xterm", "NO_COLOR": "1"}):
            text = on_terminal(args, **env)
            self.assertIn("1 of 1 passed", text)
            self.assertNotIn("\033", text)

    def test_bars_in_markdown(self):
        """A bar in a name is no border of a cell."""
        save(self.path("in"), {"a|b": tensor("F32", (2,), [1, 2])})
        lines = self.nib("inspect", "in", "--format", "md").stdout.splitlines()
        row, = [line for line in lines if "a\\|b" in line]
        cells = re.split(r"(?<!\\)\|", row)
        titles, = [line for line in lines if "other tensor" in line]
        self.assertEqual(len(cells), len(titles.split("|")))
        self.assertEqual(cells[1].strip(), "a\\|b")
        self.assertEqual(len(row), len(titles))

    def test_json_onto_a_full_disk(self):
        for form in ("json", "jsonl", "csv", "md"):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run(
                    [NIB, "check", "--preset", "small", "--format", form,
                     "--quiet"], stdout=full, text=True,
                    stderr=subprocess.PIPE, check=False, timeout=60)
            self.assertEqual(result.returncode, 4)
            self.assertRegex(result.stderr, "^nib check: cannot write to "
                             "standard output[^\n]*\n$")

    def test_standard_output_that_fails(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([NIB, "info"], stdout=full, text=True,
                                    stderr=subprocess.PIPE, check=False,
                                    timeout=60)
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot write to standard output", result.stderr)
        result = subprocess.run(["sh", "-c", '"$0" info >&-', NIB], text=True,
                                stderr=subprocess.PIPE, check=False,
                                timeout=60)
        self.assertEqual(result.returncode, 4)

    def test_closed_pipe_is_quiet(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([NIB, "completion", "man"], stdout=writer,
                                stderr=subprocess.PIPE, check=False,
                                timeout=60,
                                preexec_fn=lambda: signal.signal(
                                    signal.SIGPIPE, signal.SIG_DFL))
        os.close(writer)
        self.assertEqual((result.returncode, result.stderr), (4, b""))


class Check(NibTest):
    def test_small_shapes_everywhere(self):
        for isa in ISAS:
            for layout in ("linear", "tiled"):
                for out in ("fp32", "fp16", "bf16"):
                    rows = self.rows("check", "--preset", "small", "--isa",
                                     isa, "--layout", layout, "--out", out)
                    self.assertTrue(all(row["ok"] for row in rows))
                    self.assertEqual({row["backend"] for row in rows},
                                     {"cpu-" + isa})
                    self.assertEqual(
                        {row["op"] for row in rows},
                        {"gemm", "dual_gemm", "group_gemm", "group_dual",
                         "gemv", "moe", "moe_dual"})

    def test_rows_are_given_again_by_their_command(self):
        rows = self.rows("check", "--preset", "small", "--layout", "tiled",
                         "--out", "bf16", "--seed", "7", "--threads", "1")
        for row in rows:
            words = shlex.split(row["repro"])
            self.assertEqual(words[0], "nib")
            again = self.rows(*words[1:])
            self.assertEqual(len(again), 1)
            for key in ("op", "shape", "backend", "weights", "layout", "out",
                        "checked", "error", "bound", "worst_got"):
                self.assertEqual(again[0][key], row[key], row["repro"])

    def test_seeds_and_samples(self):
        args = ("check", "--op", "gemm", "--shape", "40x9x64", "--packed")
        whole = self.rows(*args)[0]
        self.assertEqual(whole["checked"], 360)
        part = self.rows(*args, "--rows", "4")[0]
        self.assertEqual(part["checked"], 36)
        other = self.rows(*args, "--seed", "2")[0]
        self.assertNotEqual(other["error"], whole["error"])

    def test_shapes(self):
        for args, shapes in [
                ("--m 1:4+1 --n 8 --k 16", ["1x8x16", "2x8x16", "3x8x16",
                                            "4x8x16"]),
                ("--m 1:9*2 --n 8 --k 16,32", [
                    "%dx8x%d" % (m, k) for m in (1, 2, 4, 8)
                    for k in (16, 32)]),
                ("--op group_gemm --m 1:3+1 --n 8 --k 16", [
                    "m=1,2,3 n=8 k=16"]),
                ("--op group_gemm --shape 1x8x16+2x4x32,3x4x16", [
                    "1x8x16+2x4x32", "m=3 n=4 k=16"]),
                ("--op gemv --m 5,6 --k 16 --batch 2", ["5x16x2", "6x16x2"]),
                ("--op gemm --shape 2x3x16x4", ["2x3x16x4"]),
                ("--op moe --m 1,0 --n 4 --k 16 --experts 5", [
                    "m=1,0,1,0,...(5, 3 rows) n=4 k=16"])]:
            with self.subTest(args):
                rows = self.rows("check", *args.split(), "--packed")
                self.assertEqual([row["shape"] for row in rows], shapes)
                self.assertTrue(all(row["ok"] for row in rows))

    def test_nothing_to_multiply_is_fine(self):
        for shape in ("0x4x16", "4x0x16"):
            row = self.rows("check", "--shape", shape, "--packed")[0]
            self.assertEqual((row["checked"], row["ok"]), (0, True))


class Plan(NibTest):
    def test_expected_time_is_the_larger_limit(self):
        limits = ("--gflops", "100", "--gbps", "10")
        row = self.rows("plan", "--shape", "64x128x256", *limits)[0]
        self.assertEqual(row["flop"], 2 * 64 * 128 * 256)
        self.assertAlmostEqual(row["expected_s"], max(
            row["flop"] / 100e9, row["bytes"] / 10e9), delta=1e-12)
        row = self.rows("plan", "--op", "gemv", "--shape", "4096x1024",
                        *limits)[0]
        self.assertEqual(row["limit_kind"], "--gbps")
        self.assertAlmostEqual(row["expected_s"], row["bytes"] / 10e9,
                               delta=1e-9)

    def test_needs_no_operands(self):
        """Only packed ones are made.  ThreadSanitizer leaves a program about a
        terabyte of addresses."""
        def args(rows):
            return ("plan", "--op", "gemv", "--shape", f"{rows}x1048576",
                    "--gflops", "1", "--gbps", "1")
        self.assertEqual(self.rows(*args(999999))[0]["flop"],
                         2 * 999999 * 1048576)
        self.refused(*args(9999999), "--packed", code=4,
                     says="no memory for .* of")

    def test_explains_itself(self):
        args = ("plan", "--shape", "64x128x256", "--gflops", "1", "--gbps",
                "1")
        row = self.rows(*args)[0]
        self.assertIn(row["explanation"], self.nib(*args).stdout)
        self.assertGreaterEqual(row["tasks"], 1)
        self.assertEqual(row["k_slices"], 1)

    def test_without_rows_no_weights_are_read(self):
        for packed, says in (((), "no weights are read"),
                             (("--packed",), "no weights are read")):
            row = self.rows("plan", "--shape", "0x16x32", "--gflops", "1",
                            "--gbps", "1", *packed)[0]
            self.assertRegex(row["explanation"], says + "$")

    def test_seeds(self):
        rows = self.rows("plan", "--preset", "seeds", "--gflops", "1",
                         "--gbps", "1", "--packed")
        self.assertEqual(len(rows), 15)
        self.assertEqual(rows[0]["flop"], 2 * 128 * 7168 * 16384)

    def test_names_and_sizes(self):
        """Programs build a preset's shapes from these; the text of a group is cut."""
        found = {r["name"]: r for r in self.preset("seeds") + self.preset("balanced")}
        self.assertEqual(found["G3"]["sizes"], [[192, 3072, 4096], [320, 3072, 4096]])
        self.assertEqual((found["V2"]["sizes"], found["V2"]["batch"]),
                         ([[1, 4096, 7168]], 8))
        self.assertEqual(found["E8"]["sizes"], 32 * [[8, 4096, 7168]])
        self.assertEqual([r["name"] for r in self.preset("prefill")],
                         ["K512", "K2048", "K8192", "L512", "L2048", "L8192"])
        self.assertEqual([r["name"] for r in self.preset("ampere")][-7:],
                         ["J1024", "P1", "P16", "P256", "Q1", "Q16", "Q256"])
        self.assertIsNone(self.preset("small")[0]["name"])

    def preset(self, name):
        return self.rows("plan", "--preset", name, "--gflops", "1", "--gbps",
                         "1")

    def test_decode(self):
        shapes = [tuple(map(int, row["shape"].split("x")))
                  for row in self.preset("decode")]
        self.assertEqual(shapes, [(m, n, k) for n, k, ms in (
            (4096, 4096, (1, 8, 32, 64, 128)), (7168, 2048, (1, 8, 32, 64, 128)),
            (28672, 8192, (1, 4, 8, 16, 32, 64, 128)), (8192, 8192, (1, 16, 64)))
            for m in ms])

    def test_experts_have_the_rows_of_all_tokens(self):
        """Their first rows are those of gpu_baselines.py, which
        test_gpu_baselines.py compares."""
        rows = iter(self.preset("experts"))
        for experts, top, n, k, counts in (
                (128, 8, 1536, 2048, (1, 4, 16, 64, 256)),
                (128, 8, 2048, 768, (1, 4, 16, 64, 256)),
                (8, 2, 28672, 4096, (1, 4, 16, 64, 256)),
                (256, 8, 4096, 7168, (1, 16, 64))):
            for tokens in counts:
                row = next(rows)
                self.assertEqual(row["op"], "moe")
                self.assertEqual(row["flop"], 2 * tokens * top * n * k)
                self.assertRegex(row["shape"], r"^m=(\d+,){4}\.\.\.\(%d, %d "
                                 r"rows\) n=%d k=%d$" % (
                                     experts, tokens * top, n, k))
                # A token goes to different experts.
                most = max(map(int, row["shape"][2:].split(",")[:4]))
                self.assertLessEqual(most, tokens)
        self.assertEqual(list(rows), [])


@unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
class Unsupported(NibTest):
    def test_says_what_to_do(self):
        for command in ("check", "plan --gflops 1 --gbps 1", "bench"):
            for kind in ("fp32", "int8"):
                words = command.split()
                result = self.nib(*words, "--device", "cuda:0", "--shape",
                                  "5x16x32", "--activations", kind, "--quiet",
                                  code=4, env=fake_gpu())
                self.assertRegex(
                    result.stderr, r"^nib %s: .*5x16x32.*: --activations %s: "
                    r"must be NVFP4.*; --device cpu takes all of them "
                    r"\(unsupported\)\n$" % (words[0], kind))


if __name__ == "__main__":
    unittest.main(verbosity=2)
