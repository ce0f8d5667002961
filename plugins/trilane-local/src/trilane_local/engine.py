"""A loaded model: `xllamacpp`, which is llama.cpp in the process, and what is generated with it.

The engine computes in threads of its own and gives each piece to a function, whose answer may be to stop. How a piece
reaches an event loop is in `handoff.py`.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from trilane.errors import ConfigError

from .settings import LocalSettings
from .weights import weights_of

__all__ = ["Engine", "LocalServer", "shared_engine"]


class Engine:
    """One model in memory.

    Attributes:
        base_url: Where its own server listens, in OpenAI's chat format; only this machine reaches it.
        api_key: What that server wants to see.

    Raises:
        ConfigError: the engine is not installed, or cannot load the file.
    """

    def __init__(self, path: Path, context_tokens: int, threads: int) -> None:
        self.api_key = secrets.token_urlsafe(24)
        try:
            xllamacpp: Any = import_module("xllamacpp")
        except ImportError as error:
            raise ConfigError(
                "local: the engine is not installed. Install it with: pip install 'trilane-local[engine]' (102 MB)"
            ) from error
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = context_tokens
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        parameters.warmup = False
        parameters.verbosity = -1
        parameters.prefill_assistant = False
        parameters.ui = parameters.endpoint_slots = parameters.endpoint_props = False
        parameters.endpoint_metrics = True
        parameters.api_keys = [self.api_key]
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except Exception as error:
            raise ConfigError(f"local: the engine cannot load {path}: {error}") from error
        self.base_url = f"{self._server.listening_address}/v1"

    def generate(self, request: Mapping[str, Any], take: Callable[[dict[str, Any]], bool]) -> None:
        """Answer a chat request, piece by piece. Blocks.

        Args:
            request: In OpenAI's chat format.
            take: Gets each piece; True stops the answer.

        Raises:
            ValueError: the engine does not take the request.
        """
        self._server.handle_chat_completions({**request, "stream": True}, take)

    def running(self) -> int:
        """How many answers are being generated."""
        found = re.search(r"^llamacpp:requests_processing (\d+)", str(self._server.handle_metrics()), re.MULTILINE)
        return int(found[1]) if found else 0


_engines: WeakValueDictionary[tuple[Path, int, int], Engine] = WeakValueDictionary()
_loading = threading.Lock()


def shared_engine(path: Path, context_tokens: int, threads: int) -> Engine:
    """The engine for a file, loaded if it is not in memory; it stays as long as somebody has it. Blocks.

    Raises:
        ConfigError: as `Engine`.
    """
    key = (path.resolve(), context_tokens, threads)
    with _loading:
        engine = _engines.get(key)
        if engine is None:
            engine = _engines[key] = Engine(*key)
        return engine


class LocalServer:
    """Offers a model to programs of this machine, in OpenAI's chat format. A context manager.

    ```python
    with LocalServer() as server:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key)
    ```

    Args:
        name: `smollm2`, a path of a GGUF file, or empty for the default.
        settings: Anything of `LocalSettings`.

    Raises:
        ConfigError: there is no such model, or the engine is not installed.
    """

    def __init__(self, name: str = "", **settings: Any) -> None:
        chosen = LocalSettings(**settings)
        try:
            path = weights_of(name, chosen.model_path)
        except LookupError as error:
            raise ConfigError(f"local: {error}") from None
        self._make: Callable[[], Engine] = lambda: shared_engine(path, chosen.context_tokens, chosen.threads)
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        self._engine = self._make()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._engine = None

    @property
    def base_url(self) -> str:
        """Where it listens, with the version.

        Raises:
            RuntimeError: outside the `with`.
        """
        return self._running().base_url

    @property
    def api_key(self) -> str:
        """What it wants to see; made anew each time a model is loaded.

        Raises:
            RuntimeError: outside the `with`.
        """
        return self._running().api_key

    def running(self) -> int:
        """How many answers are being generated.

        Raises:
            RuntimeError: outside the `with`.
        """
        return self._running().running()

    def _running(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the server does not run; use it inside `with LocalServer() as server:`")
        return self._engine
