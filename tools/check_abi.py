#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_abi.py [--record] - compares the ABI of the headers in include/ with the one
recorded for their minor version, tests/abi/nibblas-MAJOR.MINOR.txt: values of enums
and constants, sizes of structs, offsets and types of their members, and signatures of
functions.  The compiler says the numbers.

What is recorded must stay as it is until the version changes.  New names are
compatible, and so is a struct that grows at its end if it has struct_bytes.  --record
writes the file again; after a release that is right only for new names."""

import os
import subprocess
import sys
import tempfile

from python_abi import HEADERS, ROOT, Header, read_headers


def program(header):
    """A C program that prints lines "NAME = VALUE" of what the compiler decides."""
    out = ["#include <stdio.h>", "#include <stddef.h>", "#define S(m, t) "
           "sizeof(((struct t *)0)->m)"]
    out += [f'#include "{os.path.basename(path)}"' for path in HEADERS]
    out.append("int main(void)\n{")

    def put(name, value):
        out.append(f'printf("%s = %lld\\n", "{name}", (long long)({value}));')

    for name, text in header.defines.items():
        if name.startswith("NIB_VERSION") or not header_is_number(header, text):
            continue
        put(name, name)
    for key in header.enumerators:
        put(key, key)
    for name, fields in header.structs.items():
        put(f"sizeof {name}", f"sizeof(struct {name})")
        for key, base, stars, _ in fields:
            out.append(f'printf("%s = %zu, %zu bytes, {base}{"*" * stars}\\n", '
                       f'"{name}.{key}", offsetof(struct {name}, {key}), '
                       f'S({key}, {name}));')
    out.append("return 0;\n}")
    return "\n".join(out)


def header_is_number(header, text):
    try:
        header.constant(text)
    except (KeyError, ValueError):
        return False
    return True


def describe(header):
    """{name: value}, in the headers' order."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "abi")
        with open(path + ".c", "w", encoding="utf-8") as file:
            file.write(program(header))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c17", "-o", path,
                        "-I" + os.path.join(ROOT, "include"), path + ".c"], check=True)
        lines = subprocess.run([path], check=True, text=True,
                               capture_output=True).stdout.splitlines()
    lines += [f"{name}() = {result} ({', '.join(types) or 'void'})"
              for name, (result, types) in header.functions.items()]
    lines += [f"{name} = void (*)({', '.join(types)})"
              for name, types in header.callbacks.items()]
    return dict(line.split(" = ", 1) for line in lines)


def differences(recorded, found):
    """One line for each recorded name that is gone or another."""
    for name, value in recorded.items():
        got = found.get(name, "gone")
        struct = name.removeprefix("sizeof ")
        if (struct != name and f"{struct}.struct_bytes" in recorded
                and got.isdigit() and int(got) >= int(value)):
            continue
        if got != value:
            yield f"{name}: {got}, but {value} is recorded"


def main():
    header = Header(read_headers())
    version = ".".join(header.defines[f"NIB_VERSION_{part}"]
                       for part in ("MAJOR", "MINOR"))
    path = os.path.join(ROOT, "tests", "abi", f"nibblas-{version}.txt")
    found = describe(header)
    if sys.argv[1:] == ["--record"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in found.items())
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    if not os.path.exists(path):
        sys.exit(f"check_abi.py: no {os.path.relpath(path, ROOT)}: a new version is "
                 "recorded by tools/check_abi.py --record")
    with open(path, encoding="utf-8") as file:
        recorded = dict(line.rstrip("\n").split(" = ", 1) for line in file)
    bad = list(differences(recorded, found))
    for line in bad:
        print(f"{os.path.relpath(path, ROOT)}: {line}")
    if bad:
        sys.exit("check_abi.py: programs built with the recorded headers would break")


if __name__ == "__main__":
    main()
