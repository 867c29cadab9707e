#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py [--count N] [--seed S] [--files REGEX] [--json FILE] [--recheck FILE]
           [--no-emulated] [--jobs N]

Measures what the C tests notice.  Each mutant is the library with one token of src/
changed (`<` to `<=`, `+` to `-`, 16 to 17, ...).  A mutant is killed if one of the
tests fails on it.  The tests are the C programs of CTest and the replays of the
fuzzers' seeds; the software GPU's own tests are left out.  Mutants of the CUDA backend
also run the programs for a GPU on the software GPU (CTest's emu_*), if nvcc is
installed: --no-emulated leaves them out.

1. A build with coverage says which tests execute which line; only those run, the
   quickest first, with NIB_TEST_SIZE=small.
2. A mutant whose object code is that of the original changes nothing: another one is
   drawn in its place.  So is one that does not compile.
3. A mutant of a header that survives is tried with tests that are compiled with it.
   A mutant that still survives is tried under AddressSanitizer and UBSan, as in
   `make asan`.
4. Mutants that are known to change nothing that a caller can see (prefetch distances,
   cost estimates, ...) are listed in tools/mutants_equivalent.txt, each with its
   reason, and are not counted.  A listed mutant that no longer exists is an error.
5. Code of an instruction set that this machine lacks (AVX-512 on an AVX2 machine) is
   run by no test here: its mutants are listed and not counted.

Work happens in copies of the tree below build/mutants, one for each of --jobs (all
processors).  The kernels and the programs for a GPU are compiled once, in
build/mutants/emulated.  The same seed on the same tree draws the same mutants.
--recheck runs the survivors of an earlier --json again, for example after tests have
grown, and counts the others as they were.  The last line is "N passed, N failed":
mutants that were killed, and survivors that are not listed; the exit status is 1 if
less than 95 % were killed."""

import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "mutants")
EQUIVALENT = os.path.join(ROOT, "tools", "mutants_equivalent.txt")
SOURCES = re.compile(r"src/(api|core|format|file|backend/(cpu|cuda))/.*\.[ch]$")
NOT_SOURCES = re.compile(r"src/backend/cuda/kernels/")
CUDA = "src/backend/cuda/"
TESTS = re.compile(r"test_(?!emu_)|fuzz_(?!ptx)")
WANTED = 0.95
JOBS = len(os.sched_getaffinity(0))
NOT_RUN = "not run on this machine"
# What a file needs of the processor, by its suffix or folder: the flags of
# CMakeLists.txt in the words of /proc/cpuinfo.
AVX2 = {"avx2", "fma", "f16c"}
AVX512BW = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
AVX512VNNI = AVX512BW | {"avx512_vnni", "avx512vbmi"}
NEEDS = {"avx2": AVX2, "vector256": AVX2, "avxvnni": AVX2 | {"avx_vnni"},
         "avx512bw": AVX512BW, "vector512": AVX512BW,
         "avx512vnni": AVX512VNNI, "avx512bf16": AVX512VNNI | {"avx512_bf16"},
         "amx": AVX512VNNI | {"amx_tile", "amx_bf16"},
         "arm64": {"asimd"}, "vector128": {"asimd"}, "neon": {"asimd"},
         "neondot": {"asimd", "asimddp"},
         "neoni8mm": {"asimd", "asimddp", "i8mm"},
         "neonbf16": {"asimd", "asimddp", "i8mm", "bf16"}}
# A test that takes this many times its usual time hangs; sanitizers take longer.
PATIENCE, LEAST_SECONDS = 10, 10
SANITIZE, SANITIZED_PATIENCE = "address,undefined", 40

# Operators are between spaces, so that pointers and signs are not changed.
SWAPS = {"<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="],
         "!=": ["=="], "+": ["-"], "-": ["+"], "*": ["+"], "/": ["*"],
         "%": ["*"], "&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"],
         "<<": [">>"], ">>": ["<<"], "+=": ["-="], "-=": ["+="],
         "true": ["false"], "false": ["true"]}
TOKEN = re.compile(r"(?<= )(<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|[<>+\-*/%&|])(?= |$)"
                   r"|\b(true|false)\b"
                   r"|(?<![\w.])(0x[0-9a-fA-F]+|\d+)(?=[uUlL]*\b)(?![\w.]*\.)")
SKIP_LINE = re.compile(r"^\s*#|\bassert\(|_Static_assert|^\s*(extern|typedef)\b"
                       r"|_prefetch")


def processor_flags():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return set(re.search(r"^flags\s*: (.*)", file.read(), re.M)[1].split())
    except (OSError, TypeError):
        return set()


def missing_flags(path, flags):
    """What a processor with these flags lacks to run a file of src/, sorted."""
    words = re.split(r"[/_.]", path)
    needs = set().union(*(NEEDS[word] for word in words if word in NEEDS))
    return sorted(needs - flags)


def blank_comments_and_strings(text):
    """The text with the same length and lines, comments and literals as blanks."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])+\'',
                         re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", "\x00", m.group()), text)


def function_of(lines, index):
    """The name of the function around lines[index], for the list of equivalents."""
    for i in range(index, -1, -1):
        line = lines[i]
        if line[:1].isalpha() and "(" in line and not line.rstrip().endswith(";"):
            return re.findall(r"(\w+)\(", line)[-1]
    return "-"


def mutants_of(path):
    """Every mutant of a file: dicts with path, line, column, old and new token."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    lines, found, names = text.split("\n"), [], {}
    for number, blank in enumerate(blank_comments_and_strings(text).split("\n")):
        if SKIP_LINE.search(blank):
            continue
        for match in TOKEN.finditer(blank):
            old = match.group()
            news = SWAPS.get(old)
            if re.match(r"0\d", old):
                continue
            if not news:
                value = int(old, 0)
                news = [hex(value + 1) if old[:2] == "0x" else str(value + 1)]
            for new in news:
                found.append({"path": path, "line": number + 1,
                              "column": match.start(), "old": old, "new": new,
                              "function": function_of(lines, number),
                              "text": lines[number].strip()})
                name = name_of(found[-1])
                found[-1]["nth"] = names[name] = names.get(name, 0) + 1
    return found


def name_of(m):
    """How the list of equivalents names a mutant: no line number, so that it holds
    while the file around it changes; #2 is the second that would have the same name."""
    nth = f" #{m['nth']}" if m.get("nth", 1) > 1 else ""
    return f"{m['path']}:{m['function']}: {m['text']} [{m['old']} -> {m['new']}]{nth}"


def read_equivalents():
    """{name: reason}: a name a line, its reason indented below it."""
    listed, name = {}, None
    if os.path.exists(EQUIVALENT):
        with open(EQUIVALENT, encoding="utf-8") as file:
            for line in file.read().splitlines():
                if line[:1] not in ("", "#", " ", "\t"):
                    name = line
                    listed[name] = ""
                elif name and line.strip() and line[0] in " \t":
                    listed[name] = (listed[name] + " " + line.strip()).strip()
    return listed


def stale_equivalents():
    """The listed mutants that the tree does not have."""
    names = {name_of(m) for m in all_mutants("")}
    return [name for name in read_equivalents() if name not in names]


def run(command, folder=None, env=None, seconds=None):
    """(exit status or None after seconds, output)."""
    process = subprocess.Popen(command, cwd=folder, env=env, text=True,
                               errors="replace", stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, ""


def must(command, folder=None):
    status, output = run(command, folder)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}\n{output[-3000:]}")
    return output


class Emulated:
    """The tests of a GPU on the software GPU: {name: (command, environment)}.  Mutants
    change neither their programs nor the kernels, so they are built once, from the tree
    itself; they load the library of the tree that is tested."""

    def __init__(self):
        build = os.path.join(WORK, "emulated")
        must(["cmake", "-S", ROOT, "-B", build, "-D", "CMAKE_BUILD_TYPE=Release", "-D",
              "NIB_BUILD_TESTS=ON", "-D", "NIB_SHARED_TESTS=ON", "-D",
              "CMAKE_SKIP_BUILD_RPATH=ON"])
        listed = self.listed(build)
        programs = {}
        for name in listed:
            program = re.sub("^emu_(b200_)?", "gpu_check_", name)
            if program != name and program in listed:
                programs[name] = program
        self.tests = {}
        if programs:
            must(["cmake", "--build", build, "-j", str(JOBS), "--target", "nibemu",
                  *sorted(set(programs.values()))])
            listed = self.listed(build)
            for name in programs:
                test = listed[name]
                self.tests[name] = test["command"], self.environment(test)

    @staticmethod
    def listed(build):
        listed = json.loads(must(["ctest", "--show-only=json-v1"], build))
        return {test["name"]: test for test in listed["tests"]}

    @staticmethod
    def environment(test):
        values = {p["name"]: p["value"] for p in test["properties"]}
        return dict(line.split("=", 1) for line in values.get("ENVIRONMENT", []))


class Tree:
    """A copy of the tracked files with a build of its own."""

    def __init__(self, name, *flags):
        self.source = os.path.join(WORK, name)
        self.build = os.path.join(WORK, name + "-build")
        shutil.rmtree(self.source, ignore_errors=True)
        files = must(["git", "ls-files", "-z"], ROOT).split("\0")
        for file in filter(None, files):
            target = os.path.join(self.source, file)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.exists(os.path.join(ROOT, file)):
                # With new times: a build of an earlier copy may exist.
                shutil.copyfile(os.path.join(ROOT, file), target)
                shutil.copymode(os.path.join(ROOT, file), target)
        self.flags, self.tests, self.emulated = flags, {}, {}

    def configure(self):
        """Builds library and tests.  The copy is made before: the tree may change."""
        must(["cmake", "-S", self.source, "-B", self.build, "-D",
              "CMAKE_BUILD_TYPE=None", "-D", "NIB_CUDA=OFF", "-D",
              "NIB_BUILD_COMMAND=OFF", "-D", "NIB_BUILD_TESTS=ON", "-D",
              "NIB_SHARED_TESTS=ON", *self.flags])
        listed = json.loads(must(["ctest", "--show-only=json-v1"], self.build))
        names = [t["name"] for t in listed["tests"] if TESTS.match(t["name"])]
        must(["cmake", "--build", self.build, "-j", str(JOBS), "--target", *names])
        # CTest knows the command of a program once that is built.
        listed = json.loads(must(["ctest", "--show-only=json-v1"], self.build))
        self.tests = {t["name"]: t["command"] for t in listed["tests"]
                      if t["name"] in names}
        return self

    def with_emulated(self, emulated):
        self.emulated = emulated
        return self

    def make(self):
        """Builds the library, which all tests share; (status, output)."""
        return run(["cmake", "--build", self.build, "--target", "nib_objects"])

    def make_tests(self, names):
        """Builds those of the tests that are programs of this tree."""
        names = [name for name in names if name in self.tests]
        if names:
            run(["cmake", "--build", self.build, "-j", "1", "--target", *names])

    def run_test(self, name, seconds=None):
        env = dict(os.environ, NIB_TEST_SIZE="small", OMP_WAIT_POLICY="passive",
                   OMP_NUM_THREADS="2")
        if name in self.emulated:
            command, more = self.emulated[name]
            return run(command, self.build,
                       dict(env, LD_LIBRARY_PATH=self.build, **more), seconds)
        return run(self.tests[name], self.build, env, seconds)

    def objects(self):
        """What the mutated file was compiled to, by name."""
        found = {}
        top = os.path.join(self.build, "CMakeFiles", "nib_objects.dir")
        for folder, _, files in os.walk(top):
            for file in files:
                if file.endswith(".o"):
                    path = os.path.join(folder, file)
                    found[path] = os.stat(path).st_mtime_ns
        return found


def coverage(emulated):
    """({(path, line): tests}, {test: seconds}) by gcov."""
    tree = Tree("coverage", "-D",
                "CMAKE_C_FLAGS=-O1 --coverage -fprofile-update=atomic")
    tree.configure().with_emulated(emulated)
    top = os.path.join(tree.build, "CMakeFiles", "nib_objects.dir")
    covered, times = {}, {}
    notes = [os.path.join(f, n) for f, _, names in os.walk(top) for n in names
             if n.endswith(".gcno")]
    for test in [*tree.tests, *emulated]:
        for note in notes:
            data = note[:-1 * len("gcno")] + "gcda"
            if os.path.exists(data):
                os.remove(data)
        begin = time.monotonic()
        status, output = tree.run_test(test)
        times[test] = time.monotonic() - begin
        if status not in (0, 77):
            sys.exit(f"{test} fails on the tree itself:\n{output[-2000:]}")
        ran = [n for n in notes if os.path.exists(n[:-4] + "gcda")]
        text = must(["gcov", "--json-format", "--stdout", *ran],
                    tree.build) if ran else ""
        for line in text.splitlines():
            for file in json.loads(line)["files"]:
                path = os.path.relpath(os.path.join(tree.build, file["file"]),
                                       tree.source)
                if test in emulated and not path.startswith(CUDA):
                    continue
                for entry in file["lines"]:
                    tests = covered.setdefault(
                        f"{path}:{entry['line_number']}", set())
                    if entry["count"]:
                        tests.add(test)
        print(f"coverage: {test} {times[test]:.1f} s", flush=True)
    return {k: sorted(v) for k, v in covered.items()}, times


def saved_coverage(emulated):
    """The same, from build/mutants if no source has changed since."""
    path = os.path.join(WORK, "coverage-emulated.json" if emulated else "coverage.json")
    tree = must(["git", "ls-files", "-s", "src", "tests"], ROOT) + must(
        ["git", "diff", "HEAD", "--", "src", "tests"], ROOT)
    try:
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
        if saved["tree"] == tree:
            return saved["covered"], saved["times"]
    except (OSError, ValueError):
        pass
    covered, times = coverage(emulated)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"tree": tree, "covered": covered, "times": times}, file)
    return covered, times


def tests_of(mutant, covered, times):
    """The tests that execute a token: gcov counts a broken statement under one of its
    first lines.  A table has no line that is executed: all tests of its file."""
    for back in range(6):
        tests = covered.get(f"{mutant['path']}:{mutant['line'] - back}")
        if tests is not None:
            return tests
    file = [t for key, tests in covered.items() for t in tests
            if key.startswith(mutant["path"] + ":")]
    return list(set(file) or (t for t in times if not t.startswith("emu_")
                              or mutant["path"].startswith(CUDA)))


class Mutated:
    """The tree with a mutant, restored at the end."""

    def __init__(self, tree, mutant):
        self.path = os.path.join(tree.source, mutant["path"])
        with open(self.path, encoding="utf-8") as file:
            self.text = file.read()
        lines = self.text.split("\n")
        line, column = lines[mutant["line"] - 1], mutant["column"]
        lines[mutant["line"] - 1] = (line[:column] + mutant["new"]
                                     + line[column + len(mutant["old"]):])
        self.mutated = "\n".join(lines)

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def __enter__(self):
        self.write(self.mutated)

    def __exit__(self, *_):
        self.write(self.text)


class Sanitized:
    """One tree for all workers: few mutants get here.  Built for the first of them."""

    def __init__(self, times):
        self.lock, self.times, self.passes = threading.Lock(), times, None
        self.tree = Tree("sanitized", "-D", "CMAKE_C_FLAGS=-O1", "-D",
                         f"NIB_SANITIZE={SANITIZE}")

    def build(self):
        self.tree.configure()
        # Some need what a sanitizer takes away.
        self.passes = {t for t in self.tree.tests
                       if self.tree.run_test(t)[0] in (0, 77)}

    def killer(self, mutant, tests):
        """The test that fails on it, or None."""
        with self.lock:
            if self.passes is None:
                self.build()
            with Mutated(self.tree, mutant):
                if self.tree.make()[0]:
                    return None
                killer = next((t for t in tests if t in self.passes
                               and not self.is_passed(t)), None)
            self.tree.make()
            # Not the mutant's fault if it fails without it, too.
            return killer if killer and self.is_passed(killer) else None

    def is_passed(self, test):
        seconds = max(LEAST_SECONDS, SANITIZED_PATIENCE * self.times[test])
        return self.tree.run_test(test, seconds)[0] in (0, 77)


class Worker:
    def __init__(self, number, emulated, covered, times, sanitized):
        self.tree = Tree(f"{number}-worker", "-D", "CMAKE_C_FLAGS=-O1")
        self.tree.configure().with_emulated(emulated)
        self.covered, self.times, self.sanitized = covered, times, sanitized

    def judge(self, mutant):
        """Sets mutant["result"]: killed (by), survived, no code, same code."""
        tests = sorted(tests_of(mutant, self.covered, self.times),
                       key=self.times.get)
        before = self.tree.objects()
        saved = {p: self.read(p) for p in before}
        is_header = re.search(r"(?<!\.inc)\.h$", mutant["path"])
        with Mutated(self.tree, mutant):
            if self.tree.make()[0]:
                mutant["result"] = "does not compile"
                return
            changed = [p for p, t in self.tree.objects().items()
                       if before.get(p) != t and saved.get(p) != self.read(p)]
            # A constant may be only in tests, which compare it with another.
            if not changed and not is_header:
                mutant["result"] = "same code"
                return
            killer = self.killer(tests) if changed else None
            with_tests = is_header and not killer
            if with_tests:
                self.tree.make_tests(tests)
                killer = self.killer(tests)
        # So that the next mutant's code is compared with the tree's.
        self.tree.make()
        if with_tests:
            self.tree.make_tests(tests)
        if not killer and not changed:
            mutant["result"] = "same code"
            return
        if not killer:
            killer = self.sanitized.killer(mutant, tests)
            mutant["result"] = "survived" if tests else "no test runs it"
        if killer:
            mutant["result"], mutant["by"] = "killed", killer

    def killer(self, tests):
        for test in tests:
            status, _ = self.tree.run_test(
                test, max(LEAST_SECONDS, PATIENCE * self.times[test]))
            if status not in (0, 77):
                return test
        return None

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()


def judge_all(drawn, count, workers, path):
    """Judges mutants of the list in order until count of them have counted; the file
    at path always holds those judged so far."""
    lock, results = threading.Lock(), []
    equivalents, flags = read_equivalents(), processor_flags()
    drawn = iter(drawn)

    def work(worker):
        while True:
            with lock:
                mutant = next(drawn, None)
                if mutant is None or sum(counts(m) for m in results) >= count:
                    return
            if name_of(mutant) in equivalents:
                mutant["result"] = "equivalent"
            elif missing_flags(mutant["path"], flags):
                mutant["result"] = NOT_RUN
            else:
                worker.judge(mutant)
            with lock:
                results.append(mutant)
                save(path, results)
                done = sum(counts(m) for m in results)
            if counts(mutant):
                what = (f"{mutant['path']}:{mutant['line']} {mutant['old']} -> "
                        f"{mutant['new']} {mutant['by']}" if "by" in mutant
                        else name_of(mutant))
                print(f"{done:4} {mutant['result']:15} {what}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        for future in [pool.submit(work, w) for w in workers]:
            future.result()
    return results


def save(path, results):
    if path:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
        os.replace(path + ".new", path)


def counts(mutant):
    return mutant["result"] == "killed" or is_left(mutant)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", default="", help="only paths that match")
    parser.add_argument("--json", help="write every mutant and its result here")
    parser.add_argument("--recheck", help="judge this file's survivors again")
    parser.add_argument("--no-emulated", action="store_true",
                        help="no tests on the software GPU")
    parser.add_argument("--jobs", type=int, default=JOBS,
                        help="mutants that are tried at once")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.makedirs(WORK, exist_ok=True)
    stale = stale_equivalents()
    if stale:
        sys.exit("\n".join([f"{EQUIVALENT} lists what does not exist:", *stale]))
    drawn, kept = all_mutants(args.files), []
    emulated = {}
    if not args.no_emulated and any(m["path"].startswith(CUDA) for m in drawn):
        emulated = Emulated().tests
        print(f"{len(emulated)} programs run on the software GPU", flush=True)
    covered, times = saved_coverage(emulated)
    if args.recheck:
        drawn, kept = survivors_of(args.recheck, drawn)
        args.count = len(drawn)
    else:
        random.Random(args.seed).shuffle(drawn)
    sanitized = Sanitized(times)
    workers = [Worker(i, emulated, covered, times, sanitized)
               for i in range(args.jobs)]
    results = kept + judge_all(drawn, args.count, workers, args.json)
    save(args.json, results)
    return show(results)


def survivors_of(path, mutants):
    """The survivors among the mutants that a file has results of, and the file's other
    results.  Survivors that the tree no longer has are left out."""
    with open(path, encoding="utf-8") as file:
        old = json.load(file)
    left = {(name_of({**m, "nth": 1}), m["column"]) for m in old if is_left(m)}
    return ([m for m in mutants if (name_of({**m, "nth": 1}), m["column"]) in left],
            [m for m in old if not is_left(m)])


def is_left(mutant):
    return mutant["result"] in ("survived", "no test runs it")


def all_mutants(pattern):
    files = must(["git", "ls-files", "src"], ROOT).split()
    return [m for f in files if SOURCES.match(f) and not NOT_SOURCES.match(f)
            and re.search(pattern, f) for m in mutants_of(f)]


def show(results):
    left = [m for m in results if is_left(m)]
    killed = sum(m["result"] == "killed" for m in results)
    for result in ("equivalent", "same code", "does not compile"):
        number = sum(m["result"] == result for m in results)
        print(f"not counted: {number} {result}")
    unseen = [m for m in results if m["result"] == NOT_RUN]
    for m in unseen:
        print(f"{NOT_RUN}: {name_of(m)}")
    if unseen:
        lacks = missing_flags(" ".join(m["path"] for m in unseen), processor_flags())
        print(f"not counted: {len(unseen)} {NOT_RUN}, which lacks {' '.join(lacks)}")
    for m in left:
        print(f"{m['result']}: {name_of(m)}")
    total = killed + len(left)
    share = killed / total if total else 0
    print(f"killed: {100 * share:.1f} % of {total} (wanted: {100 * WANTED:.0f} %)")
    print(f"{killed} passed, {len(left)} failed")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
