# SPDX-License-Identifier: Apache-2.0
"""_quantization.py - the shape of a quantization_config: which of its entries are
objects, lists or strings, so that what reads it need not ask.  What they mean is not
here."""

from typing import Any

from nibblas import _patterns
from nibblas._library import FileError

_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a number",
          bool: "true or false"}
_ALL = {"quantization": dict, "config_groups": dict, "quantized_layers": dict,
        "transform_config": dict, "sparsity_config": dict, "ignore": list,
        "exclude_modules": list, "quant_algo": str, "quant_method": str, "format": str,
        "with_input_scale": bool, "nibblas_source": dict}
_GROUP = {"weights": dict, "input_activations": dict, "targets": list, "format": str}
_NUMBERS = {"num_bits": int, "group_size": int, "type": str}


def _check(where, value, kind):
    if not isinstance(value, kind):
        raise FileError(f"{where}: {str(value)[:60]}: must be {_NAMES[kind]}",
                        "quantization_config")


def _check_entries(where, values, kinds):
    _check(where, values, dict)
    for key, kind in kinds.items():
        if values.get(key) is not None:
            _check(f"{where}: {key}", values[key], kind)


def _check_patterns(where, values, by_re):
    for i, one in enumerate(values or ()):
        _check(f"{where}[{i}]", one, str)
        try:
            _patterns.check(one, by_re)
        except FileError as error:
            raise FileError(f"{where}[{i}]: {error}", "quantization_config") from None


def check(where: str, source: Any, by_re: bool = False) -> None:
    """Refuses a quantization_config with an entry of another type than formats write,
    or a pattern that nibblas does not match.

    where  the file, and what it calls the configuration, for messages
    by_re  whether another library matches the patterns, by Python's re"""
    _check_entries(where, source, _ALL)
    if source.get("quantization") is not None:
        where, source = f"{where}: quantization", source["quantization"]
        _check_entries(where, source, _ALL)
    for key in "ignore", "exclude_modules":
        _check_patterns(f"{where}: {key}", source.get(key), by_re)
    for name, group in (source.get("config_groups") or {}).items():
        place = f"{where}: config_groups: {name}"
        _check_entries(place, group, _GROUP)
        _check_patterns(f"{place}: targets", group.get("targets"), by_re)
        for key in "weights", "input_activations":
            _check_entries(f"{place}: {key}", group.get(key) or {}, _NUMBERS)
    for name, one in (source.get("quantized_layers") or {}).items():
        _check_entries(f"{where}: quantized_layers: {name}", one, {"quant_algo": str})
    _check_entries(f"{where}: transform_config", source.get("transform_config") or {},
                   {"config_groups": dict})
    _check_entries(f"{where}: sparsity_config", source.get("sparsity_config") or {},
                   {"format": str})
