"""Runs the Python blocks of README.md, of the documentation and of the plugins' READMEs as tests.

The blocks of one page share one module, from top to bottom. What a block prints must be what the page shows in the
block titled `Output` right after it; a block that prints without one fails: the reader would not know what to expect.
Pages of several files are not one module; `tests/guards/test_tutorials.py` types them as a reader would.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest
from sybil import Document, Example, Region, Sybil

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script, where Ctrl-C is ignored, and children would inherit that: the tests that
    # send it must find what a program in the foreground has.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_BLOCK = re.compile(
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$"
    r'(?:\n\s*^(?P=indent)```text title="Output"\n(?P<output>.*?)^(?P=indent)```[ ]*$)?',
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r'^```\w+ [^\n]*title="([^"]+\.\w+)"', re.MULTILINE)
_MODULE = "page"


def _module_of(example: Example) -> ModuleType:
    """A real module, so that classes and annotations of a page resolve as they do in a file."""
    module = example.namespace.get(_MODULE)
    if not isinstance(module, ModuleType):
        name = "page_" + re.sub(r"\W", "_", str(Path(example.path).relative_to(Path(__file__).parent)))
        module = example.namespace[_MODULE] = sys.modules[name] = ModuleType(name)
    return module


def _evaluate(example: Example) -> str | None:
    source, shown = example.parsed
    # Line numbers of tracebacks are those of the page.
    code = compile("\n" * example.line + source, str(example.path), "exec", dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, _module_of(example).__dict__)
    if printed.getvalue().rstrip() == (shown or "").rstrip():
        return None
    where = "the page shows" if shown is not None else 'the page shows no block titled "Output", but'
    return f"{where}:\n{shown or ''}\nthe block printed:\n{printed.getvalue()}"


def _python_blocks(document: Document) -> Iterable[Region]:
    if len(set(_FILE.findall(document.text))) > 1:
        return
    for match in _BLOCK.finditer(document.text):
        indent = match["indent"]
        output = None if match["output"] is None else textwrap.dedent(match["output"])
        code = "".join(line.removeprefix(indent) for line in match["code"].splitlines(keepends=True))
        yield Region(match.start(), match.end(), (code, output), _evaluate)


def pytest_configure(config: pytest.Config) -> None:
    """No test writes into the sessions of whoever runs it."""
    folder = tempfile.TemporaryDirectory(prefix="trilane-tests-")
    os.environ["TRILANE_SESSIONS"] = os.path.join(folder.name, "sessions.sqlite3")
    config.add_cleanup(folder.cleanup)


pytest_collect_file = Sybil(
    parsers=[_python_blocks],
    patterns=["README.md", "docs/*.md", "docs/**/*.md", "plugins/*/README.md"],
    path=str(Path(__file__).parent),
).pytest()
