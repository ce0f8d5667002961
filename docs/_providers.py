"""What the provider adapters are held to, and which of them was found to do it.

`uv run python docs/_providers.py` runs the conformance suite of each adapter and writes what passed to
`_providers.json`, which the page of providers shows (`_generate.py`). The suites themselves are part of the tests; a
guard compares their checks with what is written there.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["RESULTS", "adapters", "checks", "preset_table", "provider_table"]

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RESULTS = DOCS / "_providers.json"
SUITE = ROOT / "src" / "trilane" / "testing" / "providers.py"


def _tests(source: Path, base: str) -> Iterator[str]:
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and base in (node.name, *map(ast.unparse, node.bases)):
            functions = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from (item.name for item in functions if item.name.startswith("test_"))


def checks() -> list[str]:
    """The checks of the suite, in its order."""
    return list(_tests(SUITE, "ProviderConformance"))


def adapters() -> dict[str, Path]:
    """Provider -> the module in which its adapter runs the suite."""
    found = sorted(ROOT.glob("plugins/*/tests/test_conformance.py"))
    named = {path.parents[1].name.removeprefix("trilane-"): path for path in found}
    return {name: path for name, path in named.items() if "ProviderConformance" in path.read_text(encoding="utf-8")}


def _meaning(check: str) -> str:
    words = re.sub(r"^test_(f\d+_)?", "", check).replace("_", " ")
    return words[0].upper() + words[1:]


def provider_table() -> str:
    """A line for each check, a column for each adapter."""
    results: dict[str, dict[str, bool]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [f"| what is checked | {' | '.join(f'`{name}`' for name in results)} |"]
    lines.append("| --- |" + " --- |" * len(results))
    for check in checks():
        marks = ("●" if found.get(check) else "○" for found in results.values())
        lines.append(f"| {_meaning(check)} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def preset_table() -> str:
    """The servers that `openai:PRESET/NAME` knows."""
    from trilane_openai.presets import PRESETS

    lines = ["| name | server | key from | default model |", "| --- | --- | --- | --- |"]
    for preset in PRESETS.values():
        place = preset.base_url or " or ".join(f"`{name}`" for name in preset.url_variables)
        server = place.removeprefix("https://").removeprefix("http://") if preset.base_url else place
        key = ", ".join(f"`{name}`" for name in preset.key_variables) or "none"
        default = f"`{preset.default_model}`" if preset.default_model else "none"
        lines.append(f"| `openai:{preset.name}/NAME` | {server} | {key} | {default} |")
    return "\n".join(lines) + "\n"


def _passed(module: Path) -> dict[str, bool]:
    """Check -> whether it passed, on every backend that it was run on."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", str(module)]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase")
        found: dict[str, bool] = {}
        for case in cases:
            check = case.attrib["name"].partition("[")[0]
            found[check] = found.get(check, True) and not list(case.iter("failure")) and not list(case.iter("error"))
    return found


def main() -> None:
    """Run the suites, and write down what passed."""
    results = {name: _passed(module) for name, module in adapters().items()}
    found = {name: {check: results[name].get(check, False) for check in checks()} for name in results}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
