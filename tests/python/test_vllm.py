# SPDX-License-Identifier: Apache-2.0
"""Tiny models of both formats in vLLM by the plug-in, against nibblas.transformers.

`make test-models` installs vLLM's build for CPUs; without it the tests are skipped."""

import dataclasses
import importlib.util
import json
import os
import pickle
import shutil
import sys
import tempfile
import unittest

NEEDED = ("torch", "transformers", "vllm")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]
if MISSING:
    print(f"skipped: no {', '.join(MISSING)}: make test-models installs them")
    sys.exit(77)

import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = tempfile.mkdtemp()


def _install():
    """The entry points of pyproject.toml as an installed package has them, for this
    process and those that vLLM starts."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        groups = tomllib.load(file)["project"]["entry-points"]
    groups["vllm.general_plugins"]["test_router"] = "vllm_router:register"
    info = os.path.join(FOLDER, "nibblas-0.dist-info")
    os.makedirs(info)
    with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: nibblas\nVersion: 0\n")
    with open(os.path.join(info, "entry_points.txt"), "w", encoding="utf-8") as file:
        for group, points in groups.items():
            file.write(f"[{group}]\n" + "".join(
                f"{name} = {point}\n" for name, point in points.items()))
    sys.path.insert(0, FOLDER)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [FOLDER, os.path.dirname(os.path.abspath(__file__)),
         os.environ.get("PYTHONPATH", "")])


_install()
# One process: an error of a layer is then the error of LLM().
os.environ.update(HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                  VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR",
                  VLLM_NO_USAGE_STATS="1", VLLM_HOST_IP="127.0.0.1",
                  # vLLM binds processes to NUMA nodes, of which one is enough here.
                  VLLM_CPU_OMP_THREADS_BIND="nobind")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig

import nibblas.transformers as nt
import tiny_models as tiny
from nibblas.vllm._configs import (
    NibblasCompressedTensorsExperts, NibblasModelOptConfig, NibblasModelOptExperts,
    _refusal_of_processes)
from nibblas.vllm._layers import Experts, FusedLinear

PROMPT = torch.randint(3, 90, (12,),
                       generator=torch.Generator().manual_seed(1)).tolist()
COUNT = 8
# vLLM's attention on a CPU has no heads of 16; Qwen3's experts have no shared one.
SIZES = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 128,
         "shared_expert_intermediate_size": 0, "max_position_embeddings": 256}


def tearDownModule():
    shutil.rmtree(FOLDER)


def run(path, **named):
    """(tokens that follow the prompt, log-probabilities [tokens, vocabulary]) of vLLM,
    and the layers of nibblas in it."""
    named = {"dtype": "float32", "enforce_eager": True, **named}
    model = LLM(path, skip_tokenizer_init=True, max_model_len=64, max_logprobs=96,
                seed=0, **named)
    layers = model.apply_model(_layers)[0]
    how = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True, logprobs=96,
                         detokenize=False)
    out = model.generate([{"prompt_token_ids": PROMPT}], how,
                         use_tqdm=False)[0].outputs[0]
    del model
    cleanup_dist_env_and_memory()
    rows = [[one[i].logprob for i in range(96)] for one in out.logprobs]
    return list(out.token_ids), torch.tensor(rows), layers


def _layers(model):
    found = [getattr(one, "nibblas", None) for one in model.modules()]
    return (sum(isinstance(one, FusedLinear) for one in found),
            sum(isinstance(one, Experts) for one in found))


def reference(path, prompt=None, adapter=None):
    """The same of nibblas.transformers; adapter: the tensors of a LoRA adapter."""
    model = nt.from_pretrained(path, dtype=torch.float32)
    prompt = PROMPT if prompt is None else prompt
    for name, a in (adapter or {}).items():
        if name.endswith("lora_A.weight"):
            b = adapter[name.replace("lora_A", "lora_B")]
            model.get_submodule(name.removeprefix("base_model.model.").removesuffix(
                ".lora_A.weight")).register_forward_hook(
                    lambda _, given, y, a=a, b=b: y + given[0] @ a.T @ b.T)
    tokens, rows = list(prompt), []
    with torch.no_grad():
        for _ in range(COUNT):
            logits = model(torch.tensor([tokens])).logits[0, -1]
            rows.append(logits.log_softmax(-1))
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt):], torch.stack(rows)


def write_adapter(folder, config):
    """A LoRA adapter of rank 8 for all projections of a Llama; returns its tensors."""
    heads = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    hidden, middle = config.hidden_size, config.intermediate_size
    shapes = {"self_attn.q_proj": (heads, hidden), "self_attn.k_proj": (kv, hidden),
              "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, heads),
              "mlp.gate_proj": (middle, hidden), "mlp.up_proj": (middle, hidden),
              "mlp.down_proj": (hidden, middle)}
    gen, tensors = torch.Generator().manual_seed(5), {}
    for i in range(config.num_hidden_layers):
        for part, (rows, cols) in shapes.items():
            name = f"base_model.model.model.layers.{i}.{part}.lora_"
            tensors[name + "A.weight"] = torch.randn(8, cols, generator=gen) * .1
            tensors[name + "B.weight"] = torch.randn(rows, 8, generator=gen) * .1
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w",
              encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "bias": "none",
                   "target_modules": [x.rpartition(".")[2] for x in shapes]}, file)
    return tensors


class Vllm(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def saved(self, family, form, w4a4):
        model = tiny.make(family, **SIZES)
        model.config.architectures = [type(model).__name__]
        path = tiny.save(model, self.folder, form, w4a4)[0]
        # Routers stay as they are, and say so, as in real checkpoints.
        file = os.path.join(path, "config.json")
        with open(file, encoding="utf-8") as stream:
            config = json.load(stream)
        config["quantization_config"]["ignore"] += (
            ["*.gate"] if form == "modelopt" else ["re:.*[.]gate$"])
        with open(file, "w", encoding="utf-8") as stream:
            json.dump(config, stream)
        return path

    def check(self, family, form, w4a4, layers, **named):
        path = self.saved(family, form, w4a4)
        tokens, rows, found = run(path, **named)
        self.assertEqual(found, layers)
        want, want_rows = reference(path)
        # Logits up to a constant, of which the norm of log-probabilities mostly is.
        rows, want_rows = (x - x.mean(-1, keepdim=True) for x in (rows, want_rows))
        error = float((rows - want_rows).norm() / want_rows.norm())
        print(f"{family}, {form}, {'W4A4' if w4a4 else 'W4A16'}: {error:.1e}",
              flush=True)
        # W4A4: a value next to the middle of two codes may go to the other one.
        self.assertLess(error, 0.02 if w4a4 else 1e-5)
        if not w4a4:
            self.assertEqual(tokens, want)

    def test_linears(self):
        # qkv, o, gate and up, down of two layers; tiny's projections each have global
        # scales of their own.
        self.check("llama", "modelopt", False, (8, 0))

    def test_linears_compressed_tensors(self):
        self.check("llama", "compressed-tensors", False, (8, 0))

    def test_input_scales_of_w4a16(self):
        """Files of W4A4 that their configuration calls W4A16 have input scales, which
        change nothing."""
        want = run(self.saved("llama", "modelopt", False))
        self.folder = os.path.join(self.folder, "w4a4")
        path = self.saved("llama", "modelopt", True)
        file = os.path.join(path, "config.json")
        with open(file, encoding="utf-8") as stream:
            config = json.load(stream)
        config["quantization_config"]["quant_algo"] = "W4A16_NVFP4"
        with open(file, "w", encoding="utf-8") as stream:
            json.dump(config, stream)
        tokens, rows, layers = run(path)
        self.assertEqual((tokens, layers), (want[0], (8, 0)))
        self.assertTrue(torch.equal(rows, want[1]))

    def test_quantised_activations(self):
        self.check("llama", "modelopt", True, (8, 0))

    def test_quantised_activations_compressed_tensors(self):
        self.check("llama", "compressed-tensors", True, (8, 0))

    def test_experts(self):
        self.check("qwen3_moe", "modelopt", False, (4, 2))

    def test_experts_compressed_tensors(self):
        self.check("mixtral", "compressed-tensors", False, (4, 2))

    def test_experts_quantised_activations(self):
        self.check("qwen3_moe", "modelopt", True, (4, 2))

    def test_experts_quantised_activations_compressed_tensors(self):
        self.check("qwen3_moe", "compressed-tensors", True, (4, 2))

    def test_experts_of_two_processes(self):
        """Each has half of the columns of every expert, or half of the experts."""
        for form, family, w4a4, named in (
                ("modelopt", "qwen3_moe", True, {}),
                ("compressed-tensors", "mixtral", False, {}),
                ("compressed-tensors", "mixtral", False,
                 {"enable_expert_parallel": True})):
            with self.subTest(form=form, **named):
                self.setUp()
                self.check(family, form, w4a4, (4, 2), tensor_parallel_size=2, **named)

    def test_compiled(self):
        self.check("llama", "modelopt", False, (8, 0), enforce_eager=False)

    def test_features(self):
        """A LoRA adapter, prompts in chunks of 64 tokens, and a prompt whose beginning
        is in the prefix cache."""
        path = self.saved("llama", "modelopt", False)
        adapter = write_adapter(os.path.join(self.folder, "adapter"),
                                AutoConfig.from_pretrained(path))
        prompt = torch.randint(3, 90, (140,), generator=torch.Generator().manual_seed(
            4)).tolist()
        model = LLM(path, skip_tokenizer_init=True, max_model_len=256, max_logprobs=96,
                    seed=0, dtype="float32", enforce_eager=True, enable_lora=True,
                    max_lora_rank=8, max_loras=1, enable_prefix_caching=True,
                    max_num_batched_tokens=64, max_num_seqs=2)
        how = SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True,
                             logprobs=96, detokenize=False)
        self.assertEqual(model.apply_model(_layers)[0], (8, 0))
        found = []
        for lora in (None, LoRARequest("random", 1, self.folder + "/adapter")):
            want, want_rows = reference(path, prompt, lora and adapter)
            for cached in (0, 128):  # blocks of 128 tokens on a CPU
                out = model.generate([{"prompt_token_ids": prompt}], how,
                                     use_tqdm=False, lora_request=lora)[0]
                rows = torch.tensor([[one[i].logprob for i in range(96)]
                                     for one in out.outputs[0].logprobs])
                with self.subTest(lora=lora, cached=cached):
                    self.assertEqual(out.num_cached_tokens, cached)
                    self.assertEqual(list(out.outputs[0].token_ids), want)
                    self.assertLess(float((rows - want_rows).norm()
                                          / want_rows.norm()), 1e-5)
                found.append(rows)
        self.assertGreater(float((found[0] - found[2]).norm() / found[0].norm()), .01)
        del model
        cleanup_dist_env_and_memory()

    def test_pickled(self):
        """vLLM sends configurations to processes that it starts without a fork."""
        config = NibblasModelOptConfig.from_config(
            {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4",
             "ignore": ["lm_head"]})
        again = pickle.loads(pickle.dumps(config))
        self.assertEqual((type(again), again.quant_method),
                         (NibblasModelOptConfig, "W4A16_NVFP4"))
        self.assertFalse(again.LinearMethodCls(again).has_input)

    def test_modular_kernels(self):
        """vLLM asks each method for a kernel that exchanges tokens, and keeps it."""
        for kind in (NibblasModelOptExperts, NibblasCompressedTensorsExperts):
            self.assertIsNone(kind.__new__(kind).maybe_make_prepare_finalize(
                routing_tables=None))

    def test_processes(self):
        """What each process would have of the experts is refused where it is wrong."""
        def refusal(cols, **named):
            return _refusal_of_processes(dataclasses.replace(
                FusedMoEParallelConfig.make_no_parallel(), **named), cols)
        experts = {"dp_size": 2, "use_ep": True}
        self.assertEqual(refusal(16), "")
        self.assertEqual(refusal(48, tp_size=2), "")
        self.assertEqual(refusal(48, **experts), "")
        self.assertRegex(refusal(24, tp_size=4), "tensor_parallel_size = 4: leaves 24")
        self.assertRegex(refusal(48, dp_size=2), "data_parallel_size = 2: needs")
        self.assertRegex(refusal(48, all2all_backend="deepep_low_latency", **experts),
                         "all2all_backend = allgather_reducescatter")

    def test_router_weight_on_input(self):
        """Refused when the layer is made, before any weight is loaded."""
        with self.assertRaisesRegex(Exception, "apply_router_weight_on_input = True"):
            run(self.saved("llama4_text", "modelopt", False))

    def test_missing_scale(self):
        path = self.saved("llama", "modelopt", True)
        file = os.path.join(path, "model.safetensors")
        tensors = load_file(file)
        del tensors["model.layers.1.self_attn.k_proj.input_scale"]
        save_file(tensors, file, {"format": "pt"})
        with self.assertRaisesRegex(Exception, "input_scale.*nan.*no file has them"):
            run(path)


class Map(unittest.TestCase):
    def test_experts_of_two_processes(self):
        """The halves of a layer add up to the whole."""
        gen = torch.Generator().manual_seed(3)

        def stack(rows, k):
            parts = [tiny.quantize(torch.randn(rows, k, generator=gen))[0]
                     for _ in range(4)]
            codes, scales, factor = zip(*parts)
            return (torch.stack(codes),
                    torch.stack([s.view(torch.uint8) for s in scales]
                                ).view(torch.float8_e4m3fn),
                    torch.stack(factor).reshape(-1))
        (c13, s13, f13), (c2, s2, f2) = stack(64, 64), stack(64, 32)
        f13 = torch.stack((f13, f13 * 1.5), 1)
        x = torch.randn(5, 64, generator=gen)
        ids = torch.randint(0, 4, (5, 2), generator=gen)
        weights = torch.rand(5, 2, generator=gen)

        def part(own):
            return Experts((c13[own].contiguous(), s13[own].contiguous()), f13[own],
                           (c2[own].contiguous(), s2[own].contiguous()), f2[own], None,
                           None, "swiglu")
        whole = part([0, 1, 2, 3]).run(x, ids, weights, None)
        first = part([0, 2]).run(x, ids, weights, torch.tensor([0, -1, 1, -1]))
        second = part([1, 3]).run(x, ids, weights, torch.tensor([-1, 0, -1, 1]))
        self.assertLess(float((first + second - whole).norm() / whole.norm()), 1e-6)
        self.assertGreater(float(first.norm()), 0)


if __name__ == "__main__":
    unittest.main()
