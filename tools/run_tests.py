#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_tests.py PRESET - builds a preset of CMakePresets.json, runs its CTests
and counts what the programs inside them report.

A program's checks are counted from its output: cmocka's lines, TAP (ok, not ok),
or unittest's summary; a program that reports nothing is one check, by its exit
status.  The last line is "N passed, N failed", and ", N skipped" if any were; before it
there is a line for each reason why tests were skipped.  The exit status is 1 if any
failed, or if nothing passed."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

# Checks are counted from a test's output, which CTest cuts at 1 KB by default.
OUTPUT_BYTES = "33554432"

CMOCKA = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED|ERROR) +\] (.*)")
TAP = re.compile(r"(not )?ok\b[ \d]*(?:- )?(.*)")
TAP_PLAN = re.compile(r"1\.\.(\d+)( # SKIP.*)?$")
UNITTEST = re.compile(r"Ran (\d+) tests? in ")
UNITTEST_SKIP = re.compile(r"(\w+) \(.*\.\.\. skipped (.*)")
UNITTEST_END = re.compile(r"(?:OK|FAILED)(?: \((.*)\))?$")


class Result:
    """The checks that one CTest reports in its output."""

    def __init__(self):
        self.passed = 0
        self.failed = []  # names
        self.skipped = []  # (name, reason)

    def count(self):
        return self.passed + len(self.failed) + len(self.skipped)


def read_cmocka(lines, result):
    running, said = None, []
    for line in lines:
        match = CMOCKA.match(line)
        if not match:
            said.append(line.strip())
            continue
        kind, name = match.groups()
        if kind == "RUN":
            if running:
                result.failed.append(running + " (did not return)")
            running, said = name, []
        elif name != running:
            continue  # the list at the end, or an error's text
        elif kind == "OK":
            result.passed += 1
            running = None
        elif kind == "SKIPPED":
            result.skipped.append((name, " ".join(filter(None, said))))
            running = None
        elif kind == "FAILED":
            result.failed.append(name)
            running = None
    if running:
        result.failed.append(running + " (did not return)")


def read_tap(lines, result):
    planned, seen = None, 0
    for line in lines:
        plan = TAP_PLAN.match(line)
        if plan:
            planned = int(plan.group(1))
            if plan.group(2):
                result.skipped.append(("all", plan.group(2)[8:].strip()))
        match = TAP.match(line)
        if not match:
            continue
        seen += 1
        name, _, reason = match.group(2).partition("# SKIP")
        if match.group(1):
            result.failed.append(name.strip())
        elif reason or "# SKIP" in match.group(2):
            result.skipped.append((name.strip(), reason.strip()))
        else:
            result.passed += 1
    if planned is not None and seen != planned:
        result.failed.append(f"plan of {planned}, but {seen} reported")


def read_unittest(lines, result):
    total = bad = 0
    for line in lines:
        if match := UNITTEST.match(line):
            total += int(match.group(1))
        elif match := UNITTEST_SKIP.match(line):
            result.skipped.append(match.groups())
        elif total and (match := UNITTEST_END.match(line)):
            for word in (match.group(1) or "").split(", "):
                kind, _, number = word.partition("=")
                if kind in ("failures", "errors", "unexpected successes"):
                    bad += int(number)
        if line.startswith(("FAIL: ", "ERROR: ")):
            result.failed.append(line.split()[1])
    missing = bad - len(result.failed)
    result.failed += ["?"] * missing
    result.passed = max(0, total - len(result.failed) - len(result.skipped))


def skipped(case):
    """True if the program says so; a missing program has <skipped> too."""
    skip = case.find("skipped")
    return skip is not None and skip.get("message", "").startswith("SKIP_")


def read_test(case):
    """One <testcase> of CTest's JUnit file."""
    name, status = case.get("name"), case.get("status")
    lines = (case.findtext("system-out") or "").splitlines()
    result = Result()
    if any("[ RUN      ]" in line for line in lines):
        read_cmocka(lines, result)
    elif any(UNITTEST.match(line) for line in lines):
        read_unittest(lines, result)
    elif any(TAP.match(line) or TAP_PLAN.match(line) for line in lines):
        read_tap(lines, result)
    if status == "run":
        if result.count() == 0:
            result.passed = 1
    elif skipped(case):
        reason = " ".join(lines).removeprefix("skipped: ")
        result.skipped.append(("all", reason))
    elif not result.failed:
        failure = case.find("failure")
        why = failure.get("message", "") if failure is not None else ""
        result.failed.append(f"({why or status})")
    result.failed = [f"{name}: {what}" for what in result.failed]
    result.skipped = [(f"{name}: {what}", why) for what, why in result.skipped]
    return result


def run_quietly(*command):
    """Shows the command's output only when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.stdout.write(done.stdout)
        print(f"{' '.join(command)}: failed\n0 passed, 1 failed")
        sys.exit(1)


def show_skipped(skipped):
    """One line for each reason: how many tests it skips, and the first two."""
    reasons = {}
    for name, reason in skipped:
        reasons.setdefault(reason or "no reason given", []).append(name)
    for reason, names in reasons.items():
        some = ", ".join(names[:2]) + ", ..." * (len(names) > 2)
        print(f"skipped: {len(names)}: {reason} ({some})")


def last_line(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped
                                                  else "")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    preset = sys.argv[1]
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    jobs = str(len(os.sched_getaffinity(0)))
    report = os.path.abspath(f"build/{preset}/junit.xml")

    print(f"building build/{preset}", flush=True)
    run_quietly("cmake", "--preset", preset, "-D", "NIB_BUILD_TESTS=ON")
    run_quietly("cmake", "--build", "--preset", preset, "-j", jobs)
    if os.path.exists(report):
        os.remove(report)
    ctest = subprocess.run(
        ["ctest", "--preset", preset, "-j", jobs, "--output-junit", report,
         "--test-output-size-passed", OUTPUT_BYTES,
         "--test-output-size-failed", OUTPUT_BYTES], stdin=subprocess.DEVNULL)

    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        result = read_test(case)
        passed += result.passed
        failed += result.failed
        skipped += result.skipped
    if ctest.returncode and not failed:
        failed.append(f"ctest: exit status {ctest.returncode}")
    if passed == 0 and not failed:
        failed.append("no test ran")
    print()
    show_skipped(skipped)
    for name in failed:
        print(f"FAILED: {name}")
    print(last_line(passed, len(failed), len(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
