# SPDX-License-Identifier: Apache-2.0
"""vllm_weights.py - models of vllm_serve.py: real shapes, random weights that are made
on the device when vLLM loads them.

The directory of a model holds a config.json and no weights.  The loader makes each
tensor of the checkpoint under its name in the file, and vLLM's own code takes it from
there: it fuses projections and splits them over processes.  A tensor follows from its
name, so that all formats have the same weights, and bfloat16 has them exactly: products
of a code, a scale and a power of two have at most 6 significant bits."""

import json
import os
import zlib

LOAD_FORMAT = "nvfp4-random"
GLOBAL, INPUT = 2.0 ** -15, 0.004
CODES = (0., .5, 1., 1.5, 2., 3., 4., 6., -0., -.5, -1., -1.5, -2., -3., -4., -6.)
FORMATS = ("modelopt", "compressed-tensors")

_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
_QWEN = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
         "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
         "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}
_BOTH = {"hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 8192, "tie_word_embeddings": False,
         "dtype": "bfloat16"}


def _sizes(hidden, middle, layers, heads, kv_heads, head, vocabulary, **more):
    return {"hidden_size": hidden, "intermediate_size": middle,
            "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": head,
            "vocab_size": vocabulary, **more}


MODELS = {
    "llama-8b": {**_LLAMA, **_sizes(4096, 14336, 32, 32, 8, 128, 128256)},
    "qwen3-30b-a3b": {**_QWEN, **_sizes(2048, 6144, 48, 32, 4, 128, 151936,
                                        moe_intermediate_size=768, num_experts=128,
                                        num_experts_per_tok=8)},
    "tiny-llama": {**_LLAMA, **_sizes(128, 256, 2, 4, 2, 32, 512)},
    "tiny-qwen3": {**_QWEN, **_sizes(128, 256, 2, 4, 2, 32, 512,
                                     moe_intermediate_size=64, num_experts=4,
                                     num_experts_per_tok=2)}}


# ---- config.json -------------------------------------------------------------


def _quantization(engine, activations, form, has_experts):
    """The quantization_config of an NVFP4 checkpoint."""
    four = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}
    group = {"targets": ["Linear"], "weights": dict(four), "input_activations": None}
    w4a4 = activations == "w4a4"
    if form == "modelopt":
        if w4a4:
            group["input_activations"] = {**four, "dynamic": "local"}
        # Humming has one name for both, and compares parts of names: mlp.gate is a
        # part of mlp.gate_up_proj.
        is_humming = engine == "humming"
        routers = ["mlp.gate" if is_humming else "*.gate"] * has_experts
        return {"quant_method": "modelopt", "config_groups": {"group_0": group},
                "quant_algo": "NVFP4" if w4a4 or is_humming else "W4A16_NVFP4",
                "ignore": ["lm_head", *routers],
                "producer": {"name": "modelopt", "version": "0.40"}}
    more = {"strategy": "tensor_group", "symmetric": True}
    group["weights"].update(more)
    if w4a4:
        group["input_activations"] = {**four, **more, "dynamic": "local"}
    return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": group}, "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*[.]gate$"]}


def write(folder, model, engine, activations, form, layers=None):
    """Writes the config.json of a model; activations: None for bfloat16."""
    config = {**_BOTH, **MODELS[model]}
    if layers:
        config["num_hidden_layers"] = layers
    if activations:
        config["quantization_config"] = _quantization(engine, activations, form,
                                                      "num_experts" in config)
        config["input_scales"] = (activations == "w4a4"
                                  or (form, engine == "humming") == ("modelopt", False))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


# ---- tensors -------------------------------------------------------------------


class Maker:
    """Makes the tensors of a checkpoint on a device.

    form  "modelopt", "compressed-tensors", or None for bfloat16"""

    def __init__(self, config, device):
        import torch
        self.torch, self.config, self.device = torch, config, device
        self.form = config.get("quantization_config", {}).get("quant_method")
        self.has_input = config.get("input_scales", False)
        values = torch.tensor(CODES, dtype=torch.bfloat16)
        # The two values of a byte, the lower code first.
        self.pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)),
                                 1).to(device)

    def _bytes(self, name, shape, low=0, high=256):
        gen = self.torch.Generator(device=self.device)
        gen.manual_seed(zlib.crc32(name.encode()))
        return self.torch.randint(low, high, shape, dtype=self.torch.uint8,
                                  device=self.device, generator=gen)

    def nvfp4(self, name, *shape):
        """(codes, scales) of a matrix or a stack of matrices [.., K]."""
        *rows, k = shape
        scales = self._bytes(name + "_scale", (*rows, k // 16), 0x70, 0x7f)
        return (self._bytes(name, (*rows, k // 2)),
                scales.view(self.torch.float8_e4m3fn))  # 128 to 448

    def dense(self, codes, scales):
        """The same weights in bfloat16, without rounding."""
        w = self.pairs[codes.int()].view(*scales.shape, 16)
        w *= (scales.float() * GLOBAL).to(w.dtype)[..., None]
        return w.flatten(-2)

    def _scalar(self, value, shape=()):
        return self.torch.full(shape, value, dtype=self.torch.float32,
                               device=self.device)

    def layer(self, name, codes, scales):
        """The tensors of one linear layer, under their names in this format."""
        if self.form is None:
            yield name + ".weight", self.dense(codes, scales)
        elif self.form == "modelopt":
            yield name + ".weight", codes
            yield name + ".weight_scale", scales
            yield name + ".weight_scale_2", self._scalar(GLOBAL)
            if self.has_input:
                yield name + ".input_scale", self._scalar(INPUT)
        else:
            yield name + ".weight_packed", codes
            yield name + ".weight_scale", scales
            yield name + ".weight_global_scale", self._scalar(1 / GLOBAL, (1,))
            if self.has_input:
                yield name + ".input_global_scale", self._scalar(1 / INPUT, (1,))

    def linear(self, name, rows, cols):
        yield from self.layer(name, *self.nvfp4(name, rows, cols))

    def normal(self, name, *shape):
        gen = self.torch.Generator(device=self.device)
        gen.manual_seed(zlib.crc32(name.encode()))
        x = self.torch.randn(shape, device=self.device, dtype=self.torch.float32,
                             generator=gen) * .02
        yield name + ".weight", x.bfloat16()

    def ones(self, name, count):
        yield name + ".weight", self.torch.ones(count, dtype=self.torch.bfloat16,
                                                device=self.device)

    def _experts(self, name, count, rows, cols):
        """gate, up and down of all experts; one random stack a projection, because
        there are thousands of small matrices."""
        for part, *shape in (("gate_proj", rows, cols), ("up_proj", rows, cols),
                             ("down_proj", cols, rows)):
            codes, scales = self.nvfp4(f"{name}.{part}", count, *shape)
            for i in range(count):
                yield from self.layer(f"{name}.{i}.{part}", codes[i], scales[i])

    def tensors(self):
        """(name, tensor) of the whole checkpoint."""
        c = self.config
        hidden, head = c["hidden_size"], c["head_dim"]
        q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
        yield from self.normal("model.embed_tokens", c["vocab_size"], hidden)
        for i in range(c["num_hidden_layers"]):
            at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
            yield from self.ones(f"model.layers.{i}.input_layernorm", hidden)
            yield from self.ones(f"model.layers.{i}.post_attention_layernorm", hidden)
            for part, *shape in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden),
                                 ("o", hidden, q)):
                yield from self.linear(f"{at}.{part}_proj", *shape)
            if c["model_type"] == "qwen3_moe":
                yield from self.ones(f"{at}.q_norm", head)
                yield from self.ones(f"{at}.k_norm", head)
                yield from self.normal(f"{mlp}.gate", c["num_experts"], hidden)
                yield from self._experts(f"{mlp}.experts", c["num_experts"],
                                         c["moe_intermediate_size"], hidden)
            else:
                middle = c["intermediate_size"]
                yield from self.linear(f"{mlp}.gate_proj", middle, hidden)
                yield from self.linear(f"{mlp}.up_proj", middle, hidden)
                yield from self.linear(f"{mlp}.down_proj", hidden, middle)
        yield from self.ones("model.norm", hidden)
        yield from self.normal("lm_head", c["vocab_size"], hidden)


def write_adapter(folder, model, rank=8):
    """A LoRA adapter with random weights for all projections of a dense model."""
    import torch
    from safetensors.torch import save_file
    c = {**_BOTH, **MODELS[model]}
    hidden, middle, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    shapes = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
              "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
              "mlp.gate_proj": (middle, hidden), "mlp.up_proj": (middle, hidden),
              "mlp.down_proj": (hidden, middle)}
    gen, tensors = torch.Generator().manual_seed(5), {}
    for i in range(c["num_hidden_layers"]):
        for part, (rows, cols) in shapes.items():
            name = f"base_model.model.model.layers.{i}.{part}.lora_"
            a = torch.randn(rank, cols, generator=gen) * cols ** -.5
            b = torch.randn(rows, rank, generator=gen) * .3
            tensors[name + "A.weight"] = a.bfloat16()
            tensors[name + "B.weight"] = b.bfloat16()
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w",
              encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank,
                   "lora_alpha": rank, "bias": "none", "base_model_name_or_path": "",
                   "target_modules": [x.rpartition(".")[2] for x in shapes]}, file)


# ---- vLLM's loader -------------------------------------------------------------


def register():
    """Registers the loader of load_format=LOAD_FORMAT."""
    import torch
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    @register_model_loader(LOAD_FORMAT)
    class Random(BaseModelLoader):
        def download_model(self, model_config):
            """Nothing is downloaded."""

        def load_weights(self, model, model_config):
            path = os.path.join(model_config.model, "config.json")
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            device = next(model.parameters()).device
            with torch.no_grad():
                model.load_weights(Maker(config, device).tensors())
