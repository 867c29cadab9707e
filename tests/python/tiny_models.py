# SPDX-License-Identifier: Apache-2.0
"""Tiny models of transformers with random weights, and the NVFP4 checkpoints that
ModelOpt and compressed-tensors would write for them: the names, types and
configurations of each, and the same weights dequantised."""

import json
import os
import re
import shutil

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoConfig, AutoModelForCausalLM,
                          PreTrainedTokenizerFast)

import nibblas.torch  # registers torch.ops.nibblas

SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 16, "max_position_embeddings": 64, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
           "decoder_sparse_step": 1}
DEEPSEEK = {**EXPERTS, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 2,
            "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
            "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
            "v_head_dim": 16, "head_dim": 16, "num_key_value_heads": 4}
GLM = {**EXPERTS, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
       "topk_group": 1, "first_k_dense_replace": 1}
# What a family needs in addition to SIZES.
FAMILIES = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {}, "gemma2": {}, "phi3": {},
    "olmo2": {}, "granite": {}, "mixtral": EXPERTS, "qwen2_moe": EXPERTS,
    "qwen3_moe": EXPERTS, "olmoe": EXPERTS,
    "qwen3_5_moe_text": {
        **EXPERTS, "num_hidden_layers": 2, "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"]},
    "deepseek_v3": DEEPSEEK,
    "glm4_moe": GLM, "minimax_m2": EXPERTS,
    "gpt_oss": {**EXPERTS, "intermediate_size": 32},
    "nemotron_h": {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                   "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 32,
                   "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16,
                   "n_groups": 2, "chunk_size": 16,
                   "layers_block_type": ["moe", "attention"]},
    "llama4_text": {**EXPERTS, "intermediate_size": 32, "intermediate_size_mlp": 64,
                    "interleave_moe_layer_step": 1, "use_qk_norm": False}}
LINEAR = re.compile(r"(_proj|_a|_b|_a_proj_with_mqa|\.w[123o]|\.wi_[01]|"
                    r"Attention\.[qkvo]|experts\.\d+\.\w+)\.weight$")
STACK = re.compile(r"experts\.(gate_up_proj|down_proj)$")
INPUT_SCALE = 4 / 2688
# Characters of the tokenizer of save_dense().
ALPHABET = 90
# No bfloat16 has this value.
CACHE_SCALE = 1 + 2.0 ** -20
# Each layer has an input scale of its own, so that no two can be swapped unseen: these
# times INPUT_SCALE, 1.3 times more in each layer of the model, and more by expert.
ROLES = {"k_proj": 1.3, "v_proj": 0.85, "o_proj": 0.9, "gate_proj": 1.1, "w1": 1.1,
         "up_proj": 1.7, "w3": 1.7, "gate_up_proj": 1.7, "down_proj": 0.8, "w2": 0.8}
EXPERT_TIMES = (1, 1.2, 1.5, 1.1)


def make(family, seed=0, **sizes):
    """A model with random weights in float32."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family,
                                  **{**SIZES, **FAMILIES.get(family, {}), **sizes})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "norm" not in name:
                one.normal_(0, 0.08)
    return model


def save_dense(folder, family):
    """A tiny model, a tokenizer of single characters, and a calibration text."""
    model = make(family, num_hidden_layers=2)
    model.save_pretrained(folder)
    words = {chr(33 + i): i for i in range(ALPHABET)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="!"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    generator = torch.Generator().manual_seed(7)
    with open(os.path.join(folder, "text.jsonl"), "w", encoding="utf-8") as file:
        for _ in range(20):
            ids = torch.randint(ALPHABET, (60,), generator=generator).tolist()
            file.write(json.dumps({"text": "".join(chr(33 + x) for x in ids)}) + "\n\n")
    return model


def quantize(w, shared=None):
    """(codes, scales, global scale) and the values that they are."""
    codes, scales, scale = torch.ops.nibblas.quantize(
        w.contiguous(), None if shared is None else shared, "linear")
    back = torch.ops.nibblas.dequantize(codes, scales, scale, torch.float32, "linear")
    return (codes, scales, scale), back


def input_scale(name):
    """The input scale of a layer by its name; of a stack of experts: the largest of
    theirs, by which all of them quantise x."""
    layer, expert = re.search(r"layers\.(\d+)", name), re.search(
        r"\.experts\.(\d+\.)?", name)
    times = 1 if expert is None else max(EXPERT_TIMES)
    if expert and expert[1]:
        times = EXPERT_TIMES[int(expert[1][:-1])]
    role = name.removesuffix(".weight").rpartition(".")[2]
    depth = int(layer[1]) if layer else 0
    return INPUT_SCALE * ROLES.get(role, 1) * times * 1.3 ** depth


def _linear(name, w, form, w4a4):
    """The tensors of a layer, and its weights dequantised."""
    (codes, scales, scale), back = quantize(w)
    if form == "modelopt":
        out = {name: codes, name + "_scale": scales, name + "_scale_2": scale}
        given = torch.tensor(input_scale(name))
        key = name.removesuffix("weight") + "input_scale"
    else:
        # Divisors; what the model multiplies by is their reciprocal.
        divisor = (1 / scale).reshape(1)
        back = torch.ops.nibblas.dequantize(codes, scales, (1 / divisor).reshape(()),
                                            torch.float32, "linear")
        out = {name + "_packed": codes, name + "_scale": scales,
               name + "_global_scale": divisor}
        given = 1 / torch.tensor([input_scale(name)])
        key = name.removesuffix("weight") + "input_global_scale"
    if w4a4:
        out[key] = given
    return out, back


def _stack(name, w, w4a4):
    """As ModelOpt stores experts that stay a stack [E, K, rows]."""
    (codes, scales, scale), back = quantize(w.transpose(1, 2))
    out = {name: codes.transpose(1, 2).contiguous(),
           name + "_weight_scale": scales.view(torch.uint8).transpose(
               1, 2).contiguous().view(torch.float8_e4m3fn),
           name + "_weight_scale_2": scale}
    if w4a4:
        out[name + "_input_scale"] = torch.tensor(input_scale(name))
    return out, back.transpose(1, 2).contiguous()


def configuration(form, w4a4, ignore=("lm_head",)):
    four = {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}
    group = {"targets": ["Linear"], "weights": four,
             "input_activations": {**four, "dynamic": "local"} if w4a4 else None}
    if form != "modelopt":
        # As compressed-tensors writes it; vLLM tells NVFP4 from other widths by it.
        four["strategy"] = "tensor_group"
        group["input_activations"] = {**four, "dynamic": "local"} if w4a4 else None
    if form == "modelopt":
        return {"quant_method": "modelopt", "ignore": list(ignore),
                "quant_algo": "NVFP4" if w4a4 else "W4A16_NVFP4",
                "producer": {"name": "modelopt", "version": "0.40"},
                "config_groups": {"group_0": group}}
    return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "quantization_status": "compressed", "ignore": list(ignore),
            "config_groups": {"group_0": {**group, "format": "nvfp4-pack-quantized"}}}


def _copy_shared_scales(tensors):
    """Adds the scales of a quantised kv cache, which real exports have."""
    names = sorted(x for x in tensors if x.endswith("k_proj.weight_scale"))
    for i, name in enumerate(names):
        tensors[name.replace("weight_scale", "k_scale")] = torch.tensor(
            CACHE_SCALE * (i + 1))


def write_shards(folder, tensors, shards):
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})
        return
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        save_file(part, os.path.join(folder, file), {"format": "pt"})
        where.update(dict.fromkeys(part, file))
    with open(f"{folder}/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": where}, file)


def save(model, folder, form="modelopt", w4a4=False, shards=1, cache=False,
         keep=("lm_head", "gate.weight", "router")):
    """Writes folder/nvfp4 and folder/plain, the same weights in float32; keep: parts of
    names that stay.  Returns the two paths."""
    plain, packed = os.path.join(folder, "plain"), os.path.join(folder, "nvfp4")
    model.save_pretrained(plain)
    tensors = {}
    for file in sorted(os.listdir(plain)):
        if file.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(plain, file)))
            os.remove(os.path.join(plain, file))
    whole, stored = {}, {}
    for name, w in tensors.items():
        whole[name] = w
        if any(x in name for x in keep):
            stored[name] = w
        elif STACK.search(name) and w.dim() == 3:
            parts, whole[name] = _stack(name, w, w4a4)
            stored.update(parts)
        elif LINEAR.search(name) and w.dim() == 2:
            parts, whole[name] = _linear(name, w, form, w4a4)
            stored.update(parts)
        else:
            stored[name] = w
    if cache:
        _copy_shared_scales(stored)
    shutil.copytree(plain, packed)
    save_file(whole, f"{plain}/model.safetensors", {"format": "pt"})
    write_shards(packed, {k: v.contiguous() for k, v in stored.items()}, shards)
    with open(f"{packed}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = configuration(form, w4a4)
    with open(f"{packed}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return packed, plain
