"""The command that takes the screenshots of the documentation still finds its way through the pages."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

COMMAND = Path(__file__).parents[4] / "docs" / "_pictures.py"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_pictures", COMMAND)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["chat-page", "page-light", "page-dark", "page-phone", "queues-light"])
def test_a_screenshot_can_be_taken(chromium: Any, pictures: ModuleType, name: str) -> None:
    with pictures._played(chromium, pictures.SCENES[name]) as page:
        taken = pictures._take(page)
    kept = (pictures.IMAGES / f"{name}.png").read_bytes()
    assert struct.unpack(">II", taken[16:24]) == struct.unpack(">II", kept[16:24])
