# SPDX-License-Identifier: BSD-3-Clause
"""Names that a set of C headers declares, read from the compiler's preprocessed output.

Understands what headers of plain C declarations hold: typedefs, structures and unions (nested ones
too), enumerations, functions, inline functions, variables, macros.
"""

import re
import subprocess
from dataclasses import dataclass, field

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.]*|\.\.\.|[^\s\w]')
IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")
MARKER = re.compile(r'# \d+ "(.*?)"')
DEFINE = re.compile(r"#define (\w+)(\(([^)]*)\))? ?(.*)")
QUALIFIERS = {"extern", "static", "inline", "__inline", "__inline__", "__extension__", "const"}


@dataclass
class Declarations:
    files: set = field(default_factory=set)
    origins: dict = field(default_factory=dict)  # (kind, name): file
    enumerators: list = field(default_factory=list)
    types: list = field(default_factory=list)  # as a C++ program writes them
    fields: list = field(default_factory=list)  # (type, path)
    functions: list = field(default_factory=list)
    inline_functions: set = field(default_factory=set)  # those among them that no library holds
    variables: list = field(default_factory=list)
    macros: dict = field(default_factory=dict)  # name: replacement
    function_macros: dict = field(default_factory=dict)  # name: number of parameters

    def names(self):
        result = {("enumerator", n) for n in self.enumerators}
        result |= {("type", n) for n in self.types}
        result |= {("field", f"{t}::{p}") for t, p in self.fields}
        result |= {("function", n) for n in self.functions}
        result |= {("variable", n) for n in self.variables}
        result |= {("macro", n) for n in self.macros}
        result |= {("macro", f"{n}({k})") for n, k in self.function_macros.items()}
        return result


def read(compiler, include, headers, packages):
    """What `headers`, found under the directory `include`, and the headers of the same `packages`
    that they include, declare. Headers of those packages from elsewhere are an error."""
    source = "".join(f"#include <{header}>\n" for header in headers)
    output = subprocess.run(
        [*compiler, "-x", "c", "-E", "-dD", "-I", include, "-"],
        input=source, capture_output=True, text=True, check=True).stdout
    result = Declarations()
    text = {}  # file: its lines
    file = None  # the one being read, if it is one of ours
    package = re.compile(r"(.*)/(?:%s)/(?:.*/)?[^/]+\.h$" % "|".join(packages))
    for line in output.splitlines():
        if marker := MARKER.match(line):
            path = marker.group(1)
            found = package.match(path)
            if found and found.group(1) != include:
                raise RuntimeError(f"{path} was included, which does not lie under {include}")
            file = path[len(include) + 1:] if found else None
        elif line.startswith("#"):
            if file and (macro := DEFINE.match(line)):
                name, parenthesis, parameters, replacement = macro.groups()
                if parenthesis is None:
                    result.macros[name] = replacement
                    result.origins[("macro", name)] = file
                else:
                    count = len([p for p in parameters.split(",") if p])
                    result.function_macros[name] = count
                    result.origins[("macro", f"{name}({count})")] = file
        elif file:
            text.setdefault(file, []).append(line)
    for file, lines in text.items():
        result.files.add(file)
        _parse(TOKEN.findall("\n".join(lines)), result)
        for name in result.names():
            result.origins.setdefault(name, file)
    return result


def _matching(tokens, start):
    """Index of the bracket that closes the one at `start`."""
    closing = {"(": ")", "{": "}", "[": "]"}
    stack = []
    for i in range(start, len(tokens)):
        if tokens[i] in closing:
            stack.append(closing[tokens[i]])
        elif stack and tokens[i] == stack[-1]:
            stack.pop()
            if not stack:
                return i
    raise ValueError("unbalanced: " + " ".join(tokens[start:start + 20]))


def _without_attributes(tokens):
    result = []
    i = 0
    while i < len(tokens):
        if tokens[i] in ("__attribute__", "_Pragma"):
            i = _matching(tokens, i + 1) + 1
        else:
            result.append(tokens[i])
            i += 1
    return result


def _split(tokens, separator):
    """Parts of `tokens` between separators outside brackets; a body of a function ends one too."""
    part = []
    i = 0
    while i < len(tokens):
        if tokens[i] in "({[":
            end = _matching(tokens, i)
            part += tokens[i:end + 1]
            if separator == ";" and tokens[i] == "{" and part[:i - end - 1][-1:] == [")"]:
                yield part
                part = []
            i = end + 1
            continue
        if tokens[i] == separator:
            yield part
            part = []
        else:
            part.append(tokens[i])
        i += 1
    if part:
        yield part


def _declared(tokens):
    """The name that a declarator gives: `* name [ ]`, `( * name ) ( ... )`, `name ( ... )`."""
    names = []
    i = 0
    while i < len(tokens):
        if tokens[i] == "(":
            if i + 1 < len(tokens) and tokens[i + 1] == "*":
                return _declared(tokens[i + 2:_matching(tokens, i)])
            break
        if tokens[i] == "[":
            break
        if IDENTIFIER.match(tokens[i]):
            names.append(tokens[i])
        i += 1
    return names[-1] if names else None


def _parse(tokens, result):
    for part in _split(_without_attributes(tokens), ";"):
        if not part:
            continue
        typedef = part[0] == "typedef"
        head = part[1:] if typedef else part
        while head and head[0] in QUALIFIERS:
            head = head[1:]
        if head and head[0] in ("struct", "union", "enum"):
            kind = head[0]
            tag = head[1] if len(head) > 1 and IDENTIFIER.match(head[1]) else None
            at = 1 if tag is None else 2
            if at < len(head) and head[at] == "{":
                end = _matching(head, at)
                name = _declared(head[end + 1:]) if typedef else f"{kind} {tag}"
                if kind == "enum":
                    for item in _split(head[at + 1:end], ","):
                        result.enumerators.append(item[0])
                    if typedef or tag:
                        result.types.append(name)
                else:
                    result.types.append(name)
                    for path in _fields(head[at + 1:end]):
                        result.fields.append((name, path))
                if typedef and tag:
                    result.types.append(f"{kind} {tag}")
                continue
        if typedef:
            result.types.append(_declared(part[1:]))
        elif "(" in part:
            result.functions.append(_declared(head))
            if "static" in part:
                result.inline_functions.add(_declared(head))
        elif len(head) > 2 or "extern" in part:
            result.variables.append(_declared(head))


def _fields(tokens):
    for part in _split(tokens, ";"):
        if "{" in part and part[0] in ("struct", "union"):
            at = part.index("{")
            end = _matching(part, at)
            inner = list(_fields(part[at + 1:end]))
            outer = [_declared(d) for d in _split(part[end + 1:], ",")] or [None]
            for name in outer:
                if name:
                    yield name
                for path in inner:
                    yield f"{name}.{path}" if name else path
            continue
        for declarator in _split(part, ","):
            yield _declared(declarator)
