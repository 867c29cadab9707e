# SPDX-License-Identifier: Apache-2.0
"""_state.py - what a run keeps in its output folder so that it can be continued: the
tensors of each finished block, and what they were made from."""

import json
import os
import shutil

from safetensors.torch import load_file, save_file

from nibblas._library import FileError, SystemIOError

FOLDER = ".nibblas-gptq"


class State:
    """The folder of a run.

    made_from  a JSON object; a run continues only one of the same object"""

    def __init__(self, out, made_from, restart):
        self.folder = os.path.join(out, FOLDER)
        path = os.path.join(self.folder, "state.json")
        try:
            if restart:
                shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder, exist_ok=True)
            if os.path.exists(path):
                self._check(path, made_from)
            else:
                with open(path + ".part", "w", encoding="utf-8") as file:
                    json.dump(made_from, file, indent=1)
                os.replace(path + ".part", path)
        except OSError as error:
            raise SystemIOError(f"out = {out}: {error.strerror}", "out") from None

    def _check(self, path, made_from):
        with open(path, encoding="utf-8") as file:
            try:
                found = json.load(file)
            except ValueError:
                found = {}
        for key, value in made_from.items():
            if found.get(key) != value:
                raise FileError(
                    f"{path}: is of a run with {key} = {found.get(key)}, not {value}: "
                    "continue with the same, or restart", "out")

    def _path(self, block):
        return os.path.join(self.folder, f"block-{block:05}.safetensors")

    def load(self, block):
        """(tensors, rows of the summary) of a finished block, or None."""
        path = self._path(block)
        if not os.path.exists(path):
            return None
        with open(path + ".json", encoding="utf-8") as file:
            return load_file(path), json.load(file)

    def save(self, block, tensors, rows):
        """Keeps a finished block; it is finished when the file has its name."""
        path = self._path(block)
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        save_file(tensors, path + ".part")
        os.replace(path + ".part", path)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
