"""The catalogue of hooks: names, signatures and documentation are public and change only on purpose."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
import types
import typing

import pluggy
import pytest

from trilane.hookspecs import HOOKS, HookSpecs, Marks, hookimpl, hookspec
from trilane.plugins import PluginManager
from trilane.state import HOOKS_BY_PHASE, AgentPhase

# Name, mode, and the signature exactly as it is published.
GOLDEN = """
on_tool each (self, run: RunContext[Any]) -> MaybeAwaitable[Iterable[Tool | Callable[..., object]] | None]
on_state each (self, run: RunContext[Any]) -> MaybeAwaitable[None]
on_message chain (self, run: RunContext[Any], message: UserMessage) -> MaybeAwaitable[UserMessage | None]
before_run each (self, run: RunContext[Any]) -> MaybeAwaitable[None]
before_turn each (self, run: RunContext[Any], turn: int) -> MaybeAwaitable[None]
on_model_request chain (self, run: RunContext[Any], request: ModelRequest) -> MaybeAwaitable[ModelRequest | None]
around_model around (self, run: RunContext[Any], request: ModelRequest, call_next: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> Awaitable[ModelResponse]
on_delta chain (self, run: RunContext[Any], delta: Delta, final: bool) -> Delta | Sequence[Delta] | None
on_model_error first (self, run: RunContext[Any], request: ModelRequest, error: Exception) -> MaybeAwaitable[RetryModel | ModelResponse | None]
after_model chain (self, run: RunContext[Any], response: ModelResponse) -> MaybeAwaitable[ModelResponse | None]
decide_tool decide (self, run: RunContext[Any], call: ToolCall) -> MaybeAwaitable[ToolDecision | None]
before_tool notify (self, run: RunContext[Any], call: ToolCall) -> MaybeAwaitable[None]
around_tool around (self, run: RunContext[Any], call: ToolCall, call_next: Callable[[], Awaitable[ToolResult]]) -> Awaitable[ToolResult]
after_tool chain (self, run: RunContext[Any], call: ToolCall, result: ToolResult) -> MaybeAwaitable[ToolResult | None]
after_turn notify (self, run: RunContext[Any], turn: int, message: AssistantMessage) -> MaybeAwaitable[None]
on_answer decide (self, run: RunContext[Any], message: AssistantMessage, output: object) -> MaybeAwaitable[AnswerDecision | None]
after_run notify (self, run: RunContext[Any], result: RunResult[Any]) -> MaybeAwaitable[None]
on_success notify (self, run: RunContext[Any], result: RunResult[Any]) -> MaybeAwaitable[None]
on_error notify (self, run: RunContext[Any], error: BaseException) -> MaybeAwaitable[None]
on_cancel notify (self, run: RunContext[Any], reason: str) -> MaybeAwaitable[None]
close_run teardown (self, run: RunContext[Any], status: Status) -> MaybeAwaitable[None]
on_event notify (self, run: RunContext[Any], notification: ExtensionEvent) -> MaybeAwaitable[None]
on_reply first (self, run: RunContext[Any], question: Question, payload: JsonValue) -> JsonValue | Reject
on_compact first (self, run: RunContext[Any], requested: bool) -> MaybeAwaitable[CompactedHistory | None]
register_models register (self, registry: ModelRegistry) -> None
register_stores register (self, registry: StoreRegistry) -> None
register_settings register (self, registry: SettingsRegistry) -> None
"""  # noqa: E501

REVERSED = ["after_model", "after_tool", "after_turn", "after_run", "on_success", "on_error", "on_cancel", "close_run"]
SYNC = ["on_delta", "on_reply", "register_models", "register_stores", "register_settings"]
SECTIONS = ["When:", "Arguments:", "May return:", "If it raises:", "Order:", "Example:", "versionadded:"]

every_hook = pytest.mark.parametrize("name", HOOKS)


def docstring(name: str) -> str:
    return inspect.getdoc(getattr(HookSpecs, name)) or ""


def section(name: str, title: str) -> str:
    """The text of one section of a specification's docstring."""
    text = docstring(name)
    start = text.index(title) + len(title)
    ends = [text.find(f"\n{other}") for other in SECTIONS]
    return text[start : min([end for end in ends if end > start], default=len(text))]


def test_the_hooks_and_their_signatures_are_the_published_ones() -> None:
    lines = [
        f"{hook.name} {hook.mode} {str(inspect.signature(getattr(HookSpecs, hook.name))).replace(chr(39), '')}"
        for hook in HOOKS.values()
    ]

    assert lines == GOLDEN.strip().splitlines()


def test_every_specification_is_in_the_catalogue_and_the_other_way_round() -> None:
    specified = [name for name, value in vars(HookSpecs).items() if hasattr(value, "trilane_spec")]

    assert specified == list(HOOKS)


def test_reversed_and_sync_hooks_are_the_published_ones() -> None:
    assert [name for name, hook in HOOKS.items() if hook.reverse] == REVERSED
    assert [name for name, hook in HOOKS.items() if hook.sync] == SYNC
    assert {name for name, hook in HOOKS.items() if hook.required_allowed} == {"after_model", "after_tool", "on_delta"}


def test_arguments_and_phases_are_taken_from_where_they_are_defined() -> None:
    assert HOOKS["after_tool"].arguments == ("run", "call", "result")
    assert HOOKS["after_tool"].signature == "after_tool(run, call, result)"
    assert HOOKS["decide_tool"].phases == (AgentPhase.READY, AgentPhase.RUNNING_TOOL)
    assert HOOKS["on_event"].phases == tuple(AgentPhase)
    assert HOOKS["register_models"].phases == ()
    for phase, names in HOOKS_BY_PHASE.items():
        assert all(phase in HOOKS[name].phases for name in names)


@every_hook
def test_every_specification_follows_the_template(name: str) -> None:
    text = docstring(name)
    first, blank, *_ = text.splitlines()
    places = [text.find(f"\n{title}") for title in SECTIONS]

    assert first.endswith(".")
    assert first.count(". ") == 0
    assert blank == ""
    assert -1 not in places
    assert places == sorted(places)
    assert all(section(name, title).strip() for title in SECTIONS)
    assert section(name, "versionadded:").strip() == "0.1"


@every_hook
def test_every_specification_documents_exactly_its_arguments(name: str) -> None:
    lines = textwrap.dedent(section(name, "Arguments:")).strip("\n").splitlines()
    documented = [line.partition(":")[0].strip() for line in lines if not line.startswith(" ")]

    assert tuple(documented) == HOOKS[name].arguments


@every_hook
def test_every_example_can_be_registered(name: str) -> None:
    plugin = types.ModuleType("example")
    plugin.__dict__["hookimpl"] = hookimpl
    exec(compile(textwrap.dedent(section(name, "Example:")), name, "exec"), plugin.__dict__)
    # What register_ hooks do with their registry needs things the example leaves out.
    plugin.__dict__.update(EchoModel=object, open_sqlite=object, SearchSettings=type("S", (), {"model_fields": {}}))

    manager = PluginManager([plugin])

    assert [call.plugin for call in getattr(manager.compile(), name)] == ["example"]


@every_hook
def test_annotations_are_precise(name: str) -> None:
    signature = inspect.signature(getattr(HookSpecs, name))

    for parameter in list(signature.parameters.values())[1:]:
        assert parameter.annotation not in ("Any", inspect.Parameter.empty)
    assert signature.return_annotation not in ("Any", inspect.Signature.empty)


def test_hookimpl_returns_the_function_itself_bare_and_with_options() -> None:
    def before_run() -> None: ...

    assert hookimpl(before_run) is before_run
    assert hookimpl(tryfirst=True)(before_run) is before_run


def test_hookimpl_writes_what_pluggys_marker_writes() -> None:
    def ours() -> None: ...

    def theirs() -> None: ...

    hookimpl(tryfirst=True, optionalhook=True)(ours)
    pluggy.HookimplMarker("trilane")(tryfirst=True, optionalhook=True)(theirs)
    options = dict(vars(ours)["trilane_impl"])

    assert options.pop("marks") == Marks()
    assert options == vars(theirs)["trilane_impl"]


def test_hookspec_writes_what_pluggys_marker_writes() -> None:
    def ours() -> None: ...

    def theirs() -> None: ...

    warning = DeprecationWarning("use the other one")
    hookspec(warn_on_impl=warning)(ours)
    pluggy.HookspecMarker("trilane")(warn_on_impl=warning)(theirs)

    assert vars(ours)["trilane_spec"] == vars(theirs)["trilane_spec"]
    assert vars(hookspec(lambda: None))["trilane_spec"]["warn_on_impl"] is None


def test_names_in_before_and_after_may_be_one_or_several() -> None:
    @hookimpl(before="a", after=("b", "c"), timeout=2, thread=True)
    def on_state(run: object) -> None: ...

    marks = vars(on_state)["trilane_impl"]["marks"]
    assert marks == Marks(before=("a",), after=("b", "c"), timeout=2, thread=True)


def test_the_marker_keeps_the_type_of_the_function() -> None:
    @hookimpl
    def bare(run: int) -> str:
        return str(run)

    @hookimpl(timeout=1)
    async def with_options(run: int) -> str:
        return str(run)

    if typing.TYPE_CHECKING:
        typing.assert_type(bare(1), str)
    assert bare(1) == "1"
    assert inspect.iscoroutinefunction(with_options)


def test_importing_hookspecs_and_plugins_imports_nothing_heavy() -> None:
    heavy = ["pluggy", "pydantic", "asyncio", "anyio", "trio", "inspect", "logging", "importlib.metadata", "tomllib"]
    code = f"import sys, trilane.plugins; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
