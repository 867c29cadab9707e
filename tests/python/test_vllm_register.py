# SPDX-License-Identifier: Apache-2.0
"""On which devices the vLLM plug-in registers its configurations, with stand-ins for
vLLM's modules.  test_vllm.py runs models in vLLM."""
import sys
import types
import unittest
from unittest import mock


class Platform:
    """vllm.platforms.current_platform of a CPU (0) or of a compute capability."""

    def __init__(self, capability):
        self.capability = capability

    def is_cpu(self):
        return not self.capability

    def is_cuda(self):
        return self.capability > 0

    def has_device_capability(self, least):
        return self.capability >= least


class Register(unittest.TestCase):
    def registered(self, capability):
        names = []
        fakes = {name: types.ModuleType(name) for name in (
            "vllm", "vllm.platforms", "vllm.model_executor",
            "vllm.model_executor.layers", "vllm.model_executor.layers.quantization",
            "nibblas.vllm._configs")}
        fakes["vllm.platforms"].current_platform = Platform(capability)
        layers = fakes["vllm.model_executor.layers.quantization"]
        layers.register_quantization_config = (
            lambda name: lambda config: names.append(name))
        fakes["nibblas.vllm._configs"].CONFIGS = {"modelopt_fp4": object}
        import nibblas.vllm
        with mock.patch.dict(sys.modules, fakes), \
                mock.patch.object(nibblas.vllm, "_configs",
                                  fakes["nibblas.vllm._configs"], create=True):
            nibblas.vllm.register()
        return names

    def test_devices(self):
        for capability, wanted in ((0, True), (75, False), (80, True), (86, True),
                                   (89, True), (90, True), (100, False),
                                   (120, False)):
            with self.subTest(capability=capability):
                self.assertEqual(self.registered(capability),
                                 ["modelopt_fp4"] if wanted else [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
