#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stage.py FOLDER - puts what Sphinx reads into FOLDER: the pages (*.md) where they are
in the tree, the pictures and files that they link to, index.md of this folder, and the
written pages of the C and Python API.  Pages link to each other by path, so the site
has the paths of the tree."""

import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tools")]

import c_api
import check_docs
import python_abi

# A link of Markdown to a file, not to a heading or a site.
LINK = re.compile(r"(?<=\]\()(?![a-z][a-z0-9+.-]*:|#)([^)#\s]+)(?=[)#])")
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".py": "python", ".sh": "sh",
             ".cmake": "cmake", ".yml": "yaml"}
PICTURES = (".svg", ".png")
# Python modules of the reference, and what each is for.
MODULES = {
    "nibblas": "NumPy, DLPack and files",
    "nibblas.torch": "PyTorch",
    "nibblas.torch.distributed": "Experts on several devices",
    "nibblas.transformers": "transformers",
    "nibblas.vllm": "vLLM",
    "nibblas.ggml": "ggml",
    "nibblas.gpumode": "The GPU MODE contest",
}


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.files = sorted(check_docs.listed())
        self.sources = set()

    def target(self, page, link):
        """The link to what the site has in place of a file of the tree."""
        path = os.path.normpath(os.path.join(os.path.dirname(page), link))
        if path.endswith(".md"):
            return link
        if path.endswith(PICTURES):
            shutil.copy(os.path.join(ROOT, path), self.made(path))
            return link
        self.sources.add(path)
        return link.rstrip("/") + ".md"

    def made(self, path):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def page(self, name):
        """Copies a page; links in blocks and spans of code stay as they are."""
        parts = re.split(r"(^```.*?^```|`[^`\n]+`(?!\]))", read(name),
                         flags=re.M | re.S)
        for i in range(0, len(parts), 2):
            parts[i] = LINK.sub(lambda m: self.target(name, m[1]), parts[i])
        text = "".join(parts)
        for picture in re.findall(r'<img src="([^"]+)"', text):
            self.target(name, picture)
        write(self.folder, name, text)

    def source(self, path):
        """A page that shows a file, or the names of those of a folder."""
        if os.path.isdir(os.path.join(ROOT, path)):
            text = "".join(f"- `{x}`\n" for x in self.files
                           if x.startswith(path + "/"))
        else:
            language = LANGUAGES.get(os.path.splitext(path)[1], "text")
            text = f"`````{language}\n{read(path)}`````\n"
        write(self.folder, path + ".md", f"# {path}\n\n{text}")


def tree(heading, names, first=""):
    return (f"# {heading}\n\n{first}\n\n```{{toctree}}\n:maxdepth: 1\n\n"
            + "\n".join(names) + "\n```\n")


def python_pages(folder):
    for module, purpose in MODULES.items():
        heading = f"{module}: {purpose}"
        # Packages list in __all__ what they import; other modules define all of it.
        imported = "   :imported-members:\n" if os.path.isdir(
            os.path.join(ROOT, "python", *module.split("."))) else ""
        write(folder, f"api/{module}.rst",
              f"{heading}\n{'=' * len(heading)}\n\n.. automodule:: {module}\n"
              "   :members:\n   :undoc-members:\n   :inherited-members: "
              "Module,RuntimeError,ValueError,Exception,BaseException,tuple,object\n"
              + imported)
    write(folder, "api/index.md", tree(
        "Python API", MODULES, "For programs that import nibblas. "
        "[docs/python.md](../docs/python.md) has examples."))


def main():
    folder = sys.argv[1]
    shutil.rmtree(folder, ignore_errors=True)
    site = Site(folder)
    pages = [name for name in site.files if name.endswith(".md")]
    pages.remove("docs/site/index.md")
    for name in pages:
        site.page(name)
    # It is the site's first page, two folders up.
    write(folder, "index.md", read("docs/site/index.md")
          .replace("](../../", "](").replace("](../", "](docs/"))
    for path in site.sources:
        site.source(path)
    notes = [name for name in pages if name.startswith("docs/notes/")]
    write(folder, "archive.md", tree(
        "Notes", [name[:-3] for name in notes],
        "Notes of earlier versions. Names and numbers are those of their day."))
    write(folder, "files.md", tree("Files", sorted(site.sources),
                                   "Files of the source that pages link to."))
    written = c_api.pages(read("include/nibblas.h"), read("include/nibblas_tune.h"),
                          python_abi.Header(python_abi.read_headers()))
    for name, text in written.items():
        write(folder, f"c/{name}.rst", text)
    python_pages(folder)


if __name__ == "__main__":
    main()
