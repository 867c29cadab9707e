# SPDX-License-Identifier: Apache-2.0
"""c_api.py - the headers in include/ as pages of Sphinx's C domain: one page for each
section of nibblas.h, and one for nibblas_tune.h.  The comments of headers and the
docstrings of Python are plain prose, which reStructuredText would misread, so
prose_rst() translates them.  stage.py writes the pages.  Header of tools/python_abi.py,
which reads the same headers for ctypes, says whether any declaration is missing."""

import re

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
SECTION = re.compile(r"^/\* -+ \*/\n/\* (.*?) +\*/$", re.M)
# Declarations of the top level: a body in braces, or everything up to a semicolon.
ITEM = re.compile(r"^(?P<define>#define (?P<macro>NIB_[A-Z0-9_]+) [^\n]*)|"
                  r"^(?P<kind>enum|struct) (?P<name>nib_\w+)(?: \{(?P<body>.*?)\})?;|"
                  r"^(?:NIB_API|typedef)\b(?P<text>[^;]*);", re.M | re.S)
NAME = re.compile(r"(?P<kind>struct|enum) (?P<type>nib_\w+)|(?P<call>nib_\w+)\(\)|"
                  r"\b(?P<constant>NIB_[A-Z0-9_]*[A-Z0-9])\b(?![_*])|`(?P<code>[^`]+)`|"
                  r"(?P<page>docs/[\w-]+)\.md|(?P<other>[\\*`|_])")
# A name, a gap, and its description.
TABLE = re.compile(r"\S[^.]*?(?<![.:!?]) {2,}\S")
NO_MACROS = {"NIB_API"}


def escaped(text, constants):
    """Prose as reStructuredText: names of the API become links."""
    def one(match):
        if match["kind"]:
            return f":c:{match['kind']}:`{match[0]} <{match['type']}>`"
        if match["call"]:
            return f":c:func:`{match['call']}`"
        if match["constant"]:
            role = constants.get(match["constant"])
            return f":c:{role}:`{match[0]}`" if role else match[0]
        if match["code"]:
            return f"``{match['code']}``"
        if match["page"]:
            return f":doc:`{match[0]} </{match['page']}>`"
        return "\\" + match["other"]
    return NAME.sub(one, text)


def prose(comment):
    """The lines of a comment's text, without its stars."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip()
             for line in comment.strip().splitlines()]
    while lines and not lines[0].strip():
        lines.pop(0)
    return [line.expandtabs(8) for line in lines]


def rst(comment, constants):
    return prose_rst(prose(comment), constants)


def prose_rst(lines, constants):
    """Prose as lines of reStructuredText: paragraphs, lists, and as literal blocks what
    is indented and tables of two columns (TABLE)."""
    out, mode, depth, margin = [], "text", 0, 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        item = re.match(r" *(?:-|\d+\.) ", line)
        if not line:
            out.append("")
            mode = "text" if mode == "list" else mode
        elif item and mode != "literal":
            margin = min(margin, indent) if mode == "list" else indent
            if mode != "list" or indent != depth:
                out.append("")
            mode, depth = "list", indent
            out.append(escaped(line[margin:], constants))
        elif mode == "list" and indent:
            # A line of the outer item after an inner list starts a paragraph.
            if indent <= depth:
                out.append("")
                depth = indent - 2
            out.append(escaped(line[margin:], constants))
        elif indent or (mode != "list" and TABLE.match(line)):
            if mode != "literal":
                out += ["", "::", ""]
            mode = "literal"
            out.append("   " + line)
        else:
            if mode != "text":
                out.append("")
            mode = "text"
            out.append(escaped(line, constants))
    return out


def nested(lines, depth):
    return ["   " * depth + line if line else "" for line in lines]


def directive(kind, signature, comment, constants, depth=0):
    lines = [f".. c:{kind}:: {signature}", ""]
    lines += nested(rst(comment, constants), 1) + [""]
    return nested(lines, depth)


def fields(body, mark):
    """(declaration, comment) of the members of a struct or the values of an enum.  A
    comment precedes its declaration or follows it on the same line."""
    found, pending, at = [], "", 0
    part = re.compile(r"/\*(.*?)\*/|([^%s/]+?)\s*(?:%s|$)(?:[ \t]*/\*(.*?)\*/)?"
                      % (mark, mark), re.S)
    body = body.strip()
    while at < len(body):
        match = part.match(body, at)
        at = match.end()
        while at < len(body) and body[at].isspace():
            at += 1
        if match[2] is None:
            pending = match[1]
        elif match[2].strip():
            comment = "\n\n".join(filter(None, (pending, match[3])))
            found.append((" ".join(match[2].split()), comment))
            pending = ""
    return found


def declarators(text):
    """const char *a, *b is const char *a and const char *b."""
    first, *others = [x.strip() for x in text.split(",")]
    base = re.match(r"(.*?)\s*(\**\w+(?:\[\w+\])?)$", first)
    return [first] + [f"{base[1]} {other}" for other in others]


class Reference:
    """The declarations of a header, in its order."""

    def __init__(self, text, constants):
        self.constants = constants
        self.names = set()
        text = text[:text.rindex("#ifdef __cplusplus")]
        head, self.text = text.split('extern "C" {\n#endif\n', 1)
        self.head = COMMENT.findall(head)[1]

    def sections(self):
        """(title, lines) of each section; the first one has no title."""
        titles = ["", *SECTION.findall(self.text)]
        for title, part in zip(titles, SECTION.split(self.text)[::2]):
            yield title, self.lines(part)

    def comment(self, text, at):
        """The comment that ends just before a declaration."""
        before = text[:at].rstrip(" \t")
        if not before.endswith("*/\n"):
            return ""
        # A comment that follows a declaration on its line belongs to that one.
        begin = before.rindex("/*")
        if before[before.rfind("\n", 0, begin) + 1:begin].strip():
            return ""
        return before[begin + 2:before.rindex("*/")]

    def lines(self, text):
        out, at = [], 0
        # Within a comment nothing is declared.
        blank = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        for match in ITEM.finditer(blank):
            comment = self.comment(text, match.start())
            trailing = re.match(r"[ \t]*/\*(.*?)\*/", text[match.end():])
            if trailing and "\n" not in trailing[0]:
                comment = "\n\n".join(filter(None, (comment, trailing[1])))
            out += self.item(match, text, comment)
        return out

    def item(self, match, text, comment):
        if match["define"]:
            if match["macro"] in NO_MACROS:
                return []
            self.names.add(match["macro"])
            value = re.sub(r"/\*.*", "", text[match.start():match.end()])
            value = value.split(None, 2)[2].strip()
            return directive("macro", match["macro"],
                             f"{comment}\n\nIts value: {value}", self.constants)
        if match["text"]:
            signature = " ".join(match["text"].split())
            if "[sizeof" in signature:
                return []
            name = re.search(r"\bnib_\w+(?=\)?\()", signature)[0]
            self.names.add(name)
            kind = "function" if f"(*{name})" not in signature else "type"
            return directive(kind, signature, comment, self.constants)
        self.names.add(match["name"])
        out = directive(match["kind"], match["name"], comment, self.constants)
        if match["body"] is None:
            return out
        body = text[match.start("body"):match.end("body")]
        is_enum = match["kind"] == "enum"
        for declaration, note in fields(body, "," if is_enum else ";"):
            for one in [declaration] if is_enum else declarators(declaration):
                out += directive("enumerator" if is_enum else "member", one, note,
                                 self.constants, 1)
        return out


def title(text, mark="="):
    return [text, mark * len(text), ""]


def slug(text):
    return re.sub(r"[^a-z]+", "-", text.lower()).strip("-")


def pages(main, tune, header):
    """{name: text} of the pages; header: python_abi.Header of both."""
    constants = {name: "enumerator" for name in header.enumerators}
    constants.update((name, "macro") for name in header.defines if name != "NIB_API")
    reference, tuning = Reference(main, constants), Reference(tune, constants)
    found, names = {}, []
    for section, lines in reference.sections():
        # What precedes the first section: the version and sizes.
        name, heading = slug(section or "Constants"), section or "Constants"
        names.append(name)
        found[name] = title(heading) + lines
    found["tuning"] = (title("Tuning a GPU") + rst(tuning.head, constants) + [""]
                       + next(iter(tuning.sections()))[1])
    declared = {*header.functions, *header.structs, *header.enums, *header.callbacks}
    missing = declared - reference.names - tuning.names
    if missing:
        raise SystemExit(f"c_api.py: no page declares {sorted(missing)}")
    found["index"] = (
        title("C API") + ["For programs that include ``nibblas.h``. "
                          ":doc:`../docs/start-c` has a whole program.", "",
                          ".. toctree::", "   :maxdepth: 1", ""]
        + [f"   {name}" for name in names + ["tuning"]] + [""]
        + rst(reference.head, constants))
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}
