# SPDX-License-Identifier: Apache-2.0
"""NVFP4 models in vLLM: once this package is installed, `vllm serve DIR` and
vllm.LLM(DIR) run the NVFP4 layers of ModelOpt's and compressed-tensors' checkpoints by
nibblas, on a CPU and on GPUs without FP4 units: Ampere, Ada and Hopper.  vLLM calls
register() by the entry point `vllm.general_plugins`; VLLM_PLUGINS chooses which
plug-ins it loads."""

__all__ = ["register"]


def register() -> None:
    """Registers configurations of quantisation over vLLM's own of the same names, on a
    CPU and on GPUs of compute capability 8.0 to 9.0.  Does nothing elsewhere: vLLM has
    kernels for the FP4 units of newer GPUs."""
    from vllm.platforms import current_platform

    if not (current_platform.is_cpu() or (
            current_platform.is_cuda()
            and current_platform.has_device_capability(80)
            and not current_platform.has_device_capability(100))):
        return
    from vllm.model_executor.layers.quantization import register_quantization_config

    from nibblas.vllm import _configs

    for name, config in _configs.CONFIGS.items():
        register_quantization_config(name)(config)
