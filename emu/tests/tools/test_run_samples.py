#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_run_samples.py - checks samples.json, and what run_samples.py makes of the
output of programs."""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import run_samples as samples  # noqa: E402

REPORT = ("nibemu: k, cluster 0: load of 4 bytes: these bytes were never written\n"
          "  rule: never-written: what a thread reads\n  try: x\n")


def expect(row, text, status, want):
    """judge() must begin with the words."""
    got = samples.judge(row, text, status, False)
    assert got.startswith(want), f"{got!r}, not {want!r}"


def test_judge():
    """Each kind of result."""
    expect({}, "Test PASSED", 0, "passed")
    expect({}, "Test FAILED", 0, "wrong")
    expect({}, "x", 1, "ends with 1: x")
    expect({"status": 1}, "x", 1, "passed")
    expect({}, REPORT, 1, "reported: `never-written`")
    expect({"reports": "never-written"}, REPORT, 0, "passed")
    expect({"reports": "never-written"}, "x", 0, "reported nothing")
    expect({"passes": "right"}, "right, and no errors detected", 0, "passed")
    expect({"passes": "right"}, "left", 0, "does not print")
    expect({}, "a: symbol lookup error: undefined symbol: cudaFoo", 127,
           "refused: `cudaFoo`")
    assert samples.judge({}, "", -24, True) == "takes longer"


def test_list():
    """samples.json, and lists with faults."""
    rows = json.loads(samples.LIST.read_text())
    assert samples.faults_of(rows) == []
    assert samples.faults_of({"excluded": {"a": ["x"], "b": ["x"]},
                              "samples": {"x": {"edits": {}}, "y": {"colour": 1}}}) == [
        "y: an unknown field colour", "x: it is also excluded",
        "x: it is also excluded", "x: excluded twice", "x: an edit or arguments without "
        "a size"]


def test_prepare():
    """Edits change only the copy. A missing text is an error."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "0_A" / "sample"
        folder.mkdir(parents=True)
        (folder / "a.cu").write_text("N = 100;")
        args = type("args", (), {"work": pathlib.Path(name) / "work"})
        copy, why = samples.prepare(folder, {"edits": {"a.cu": {"100": "2"}}}, args)
        assert why == "" and (copy / "a.cu").read_text() == "N = 2;"
        assert (folder / "a.cu").read_text() == "N = 100;"
        _, why = samples.prepare(folder, {"edits": {"a.cu": {"M": "2"}}}, args)
        assert why == "a.cu has no `M` to replace"


test_judge()
test_list()
test_prepare()
print("ok")
