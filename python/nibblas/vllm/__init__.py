# SPDX-License-Identifier: Apache-2.0
"""NVFP4 models in vLLM: once this package is installed, `vllm serve DIR` and
vllm.LLM(DIR) run the NVFP4 layers of ModelOpt's and compressed-tensors' checkpoints by
nibblas, on a CPU and on Hopper GPUs.  vLLM calls register() by the entry point
`vllm.general_plugins`; VLLM_PLUGINS chooses which plug-ins it loads."""

__all__ = ["register"]


def register() -> None:
    """Registers configurations of quantisation over vLLM's own of the same names.
    Does nothing where nibblas has no kernels that vLLM lacks: on GPUs other than
    Hopper's."""
    from vllm.platforms import current_platform

    if not (current_platform.is_cpu() or (
            current_platform.is_cuda()
            and current_platform.is_device_capability(90))):
        return
    from vllm.model_executor.layers.quantization import register_quantization_config

    from nibblas.vllm import _configs

    for name, config in _configs.CONFIGS.items():
        register_quantization_config(name)(config)
