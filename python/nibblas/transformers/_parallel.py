# SPDX-License-Identifier: Apache-2.0
"""_parallel.py - experts shared by processes in transformers: the scales of a stack are
sharded as its codes are, and DistributedConfig(ep_implementation="nibblas") sends
tokens as nibblas.torch.distributed does.  Needs transformers 5.23; older versions load
only whole models."""

import torch
from torch import Tensor

from nibblas._library import UnsupportedError
from nibblas.torch.distributed import ExpertParallel, all_gather
from nibblas.transformers import _experts
from nibblas.transformers._linear import CheckpointLinear, Fp8Linear

try:
    from transformers.distributed.expert_parallel import (
        AllToAllEP, AutoEP, EPImplementation, EPImplementationInterface)
    from transformers.distributed.parallel_utils import (
        replace_layer_number_by_wildcard)
except ImportError:
    EPImplementation = None

# What shards a stack by its experts.
_BY_EXPERT = "grouped_gemm"


# ---- plans -----------------------------------------------------------------


def _shard_scales(model, plan):
    """Gives scales and factors the style of their codes.  Input scales stay whole: x
    is quantised by the largest one of all experts."""
    for name, module in model.named_modules():
        for one in module.nibblas.both() if _experts.is_stacked(module) else ():
            name = replace_layer_number_by_wildcard(name)
            if plan.get(f"{name}.{one.codes}") != _BY_EXPERT:
                continue
            experts = getattr(module, one.codes).shape[0]
            for part in (one.scales, *one.factors):
                shape = getattr(module, part).shape
                # One factor may stand for all experts.
                if len(shape) and shape[0] == experts:
                    plan[f"{name}.{part}"] = _BY_EXPERT


def _keep_whole(model, plan):
    """Takes all blocks with layers of nibblas out of a plan of tensor parallelism, so
    that each process has them whole."""
    ours = [replace_layer_number_by_wildcard(name)
            for name, module in model.named_modules()
            if isinstance(module, (CheckpointLinear, Fp8Linear))
            or _experts.is_stacked(module)]
    blocks = tuple({name[:name.rindex(".*.") + 3] for name in ours if ".*." in name})
    for rule in [x for x in plan if x.startswith(blocks) or x in ours]:
        del plan[rule]
    if ours and not plan:
        # transformers refuses a plan without rules.
        plan[ours[0]] = "replicate"


def update_plan(model, plan):
    """transformers' hook, for the plans of tensors and of experts."""
    if plan is model.ep_plan:
        _shard_scales(model, plan)
    elif plan:
        _keep_whole(model, plan)


def check(model):
    """Refuses ways of distributing a model that nibblas has no layers for."""
    config = getattr(model.config, "distributed_config", None)
    if config is None:
        return
    sizes = {name: getattr(config, name, None) or 1 for name in (
        "fsdp_size", "dp_replicate_size", "pp_size", "tp_size", "ep_size")}
    for name in ("fsdp_size", "dp_replicate_size", "pp_size"):
        if sizes[name] > 1:
            raise UnsupportedError(
                f"distributed_config: {name} = {sizes[name]}: must be 1; nibblas "
                "shares only experts (ep_size)", "distributed_config")
    if sizes["tp_size"] > 1 and sizes["ep_size"] == 1:
        raise UnsupportedError(
            f"distributed_config: tp_size = {sizes['tp_size']} without ep_size: "
            "nibblas shares only experts; ep_size must be "
            "tp_size", "distributed_config")


# ---- tokens ----------------------------------------------------------------


class _Part:
    """The experts of a module that are here, as ExpertParallel calls them."""

    def __init__(self, module, offset):
        self.module, self.expert_offset = module, offset
        self.experts = module.num_experts

    @property
    def is_quantized(self):
        return (_experts.activations_of(self.module) == "nvfp4"
                and self.module.nibblas.first.has_input_scale)

    @property
    def input_scale(self):
        """The one that all experts quantise x by."""
        return _experts.input_scale(self.module, self.module.nibblas.first)

    def __call__(self, x: Tensor, ids: Tensor, _weights: Tensor,
                 x_scales: "Tensor | None" = None,
                 out_dtype: "torch.dtype | None" = None) -> Tensor:
        """Rows of float32, one for each of x; ids [rows, 1]."""
        local = ids.reshape(-1) - self.expert_offset
        outside = (local < 0) | (local >= self.experts)
        local = torch.where(outside, self.experts, local)
        if x_scales is not None:
            x = _experts.quantized(self.module, x, x_scales)
        y, back, _ = _experts.slot_rows(self.module, x, local[:, None], out_dtype)
        return y[back]


def _exchange(base):
    class Exchange(base):
        """Rows travel as codes and scales, where the layer quantises x, and each
        token's own process adds its slots: the result of one process."""

        def __init__(self, experts, ep_mesh, tp_mesh):
            super().__init__(experts, ep_mesh, tp_mesh)
            self.other = None
            if not _experts.is_stacked(experts):
                self.other = AutoEP(experts, ep_mesh, tp_mesh)
                return
            self.part = _Part(experts, ep_mesh.get_local_rank() * experts.num_experts)
            self.total = experts.num_experts * ep_mesh.size()
            self.exchange = ExpertParallel(ep_mesh.get_group())
            self.with_gradients = AllToAllEP(experts, ep_mesh, tp_mesh)

        def __call__(self, hidden_states, top_k_index, top_k_weights):
            given = hidden_states, top_k_index, top_k_weights
            if self.other is not None:
                return self.other(*given)
            if torch.is_grad_enabled() and (hidden_states.requires_grad
                                            or top_k_weights.requires_grad):
                return self.with_gradients(*given)
            # Processes with the same tokens have a slice of them each.
            count, ranks = hidden_states.shape[0], self.tp_mesh.size()
            most = -(-count // ranks)
            first = self.tp_mesh.get_local_rank() * most if ranks > 1 else 0
            x, ids, weights = (t[first:first + most] for t in given)
            y = self.exchange(self.part, x, ids, weights, self.total)
            y = y.to(hidden_states.dtype)
            if ranks == 1:
                return y
            own = y.new_zeros(most, y.shape[1])
            own[:len(y)] = y
            every = y.new_empty(most * ranks, y.shape[1])
            all_gather(every, own, group=self.tp_mesh.get_group())
            return every[:count]

    return Exchange


def register(name):
    """Adds "nibblas" to transformers' implementations, where it has them."""
    if EPImplementation is not None:
        EPImplementationInterface.register(name, _exchange(EPImplementation))
