"""Plugins of the scenarios: one that only counts how runs are closed, and one with every hook as a point."""

from __future__ import annotations

from typing import Any

from trilane import CompactedHistory, RetryModel, SendBack, hookimpl

from .promises import told_of
from .stage import Stage

__all__ = ["Closer", "Compactor", "EveryHook", "Listener", "Retrier", "SendsBack"]


class Closer:
    """Counts `close_run`."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name

    @hookimpl
    async def close_run(self, run: Any, status: str) -> None:
        """The run is closed."""
        self.stage.closed[self.name, run.run_id] += 1
        self.stage.ended.append((run.run_id, status))
        self.stage.begin("hook.close_run")
        await self.stage.call("hook.close_run")


class EveryHook(Closer):
    """Every hook, each a point, and none changes anything."""

    async def _hook(self, name: str) -> None:
        self.stage.begin(f"hook.{name}")
        await self.stage.call(f"hook.{name}")

    @hookimpl
    async def on_tool(self, run: Any) -> None:
        """A point."""
        await self._hook("on_tool")

    @hookimpl
    async def on_state(self, run: Any) -> None:
        """A point."""
        await self._hook("on_state")

    @hookimpl
    async def on_message(self, run: Any, message: Any) -> None:
        """A point."""
        await self._hook("on_message")

    @hookimpl
    async def before_run(self, run: Any) -> None:
        """A point."""
        await self._hook("before_run")

    @hookimpl
    async def before_turn(self, run: Any, turn: int) -> None:
        """A point."""
        await self._hook("before_turn")

    @hookimpl
    async def on_model_request(self, run: Any, request: Any) -> None:
        """A point."""
        await self._hook("on_model_request")

    @hookimpl
    async def around_model(self, run: Any, request: Any, call_next: Any) -> Any:
        """Two points, around the model."""
        await self._hook("around_model")
        response = await call_next(request)
        await self._hook("around_model.after")
        return response

    @hookimpl
    def on_delta(self, run: Any, delta: Any, final: bool) -> None:
        """A point that cannot wait."""
        self.stage.call_sync("hook.on_delta")

    @hookimpl
    async def on_model_error(self, run: Any, request: Any, error: BaseException) -> None:
        """A point."""
        await self._hook("on_model_error")

    @hookimpl
    async def after_model(self, run: Any, response: Any) -> None:
        """A point."""
        await self._hook("after_model")

    @hookimpl
    async def decide_tool(self, run: Any, call: Any) -> None:
        """A point."""
        await self._hook("decide_tool")

    @hookimpl
    async def before_tool(self, run: Any, call: Any) -> None:
        """A point."""
        await self._hook("before_tool")

    @hookimpl
    async def around_tool(self, run: Any, call: Any, call_next: Any) -> Any:
        """Two points, around the tool."""
        await self._hook("around_tool")
        result = await call_next()
        await self._hook("around_tool.after")
        return result

    @hookimpl
    async def after_tool(self, run: Any, call: Any, result: Any) -> None:
        """A point."""
        await self._hook("after_tool")

    @hookimpl
    async def after_turn(self, run: Any, turn: int, message: Any) -> None:
        """A point."""
        await self._hook("after_turn")

    @hookimpl
    async def on_answer(self, run: Any, message: Any, output: Any) -> None:
        """A point."""
        await self._hook("on_answer")

    @hookimpl
    async def after_run(self, run: Any, result: Any) -> None:
        """A point."""
        await self._hook("after_run")

    @hookimpl
    async def on_success(self, run: Any, result: Any) -> None:
        """A point."""
        await self._hook("on_success")

    @hookimpl
    async def on_error(self, run: Any, error: BaseException) -> None:
        """A point."""
        await self._hook("on_error")

    @hookimpl
    async def on_cancel(self, run: Any, reason: str) -> None:
        """A point."""
        await self._hook("on_cancel")

    @hookimpl
    def on_reply(self, run: Any, question: Any, payload: Any) -> None:
        """A point that cannot wait."""
        self.stage.call_sync("hook.on_reply")

    @hookimpl
    async def on_compact(self, run: Any) -> None:
        """A point."""
        await self._hook("on_compact")


class Listener(Closer):
    """Hears every notification."""

    @hookimpl
    async def on_event(self, run: Any, notification: Any) -> None:
        """A point."""
        self.stage.tell(self.name, told_of(notification))
        self.stage.begin("hook.on_event")
        await self.stage.call("hook.on_event")


class Compactor(Closer):
    """Compacts the history in the second turn."""

    @hookimpl
    async def on_compact(self, run: Any) -> Any:
        """Keep the request only."""
        await self.stage.call("hook.on_compact")
        if run.turn != 1:
            return None
        await self.stage.call("hook.on_compact.ready")
        return CompactedHistory(messages=(run.history[0],), reason="only the request is kept")


class Retrier(Closer):
    """Tries a failed model call again, once."""

    @hookimpl
    async def on_model_error(self, run: Any, request: Any, error: BaseException) -> Any:
        """Once, after a second."""
        self.stage.heard.append(error)
        await self.stage.call("hook.on_model_error")
        if run.stash.get("tried"):
            return None
        run.stash["tried"] = True
        return RetryModel(after_seconds=1.0)


class SendsBack(Closer):
    """Sends the first answer back."""

    @hookimpl
    async def on_answer(self, run: Any, message: Any, output: Any) -> Any:
        """Once."""
        await self.stage.call("hook.on_answer")
        if run.stash.get("sent"):
            return None
        run.stash["sent"] = True
        return SendBack(feedback="Say it in more words.")
