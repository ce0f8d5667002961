"""What a provider would refuse: rules for the bodies of requests, as the providers' own errors state them.

The rules for Trilane's messages, before an adapter has turned them into a request, are in `trilane.testing.history`,
with the places where they come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

__all__ = ["check_request"]

_CHAT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MESSAGES_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MESSAGES_ID = re.compile(r"[a-zA-Z0-9_-]+")
_IMAGE = re.compile(r"https?://|data:image/")
_CHAT_PARTS = ("text", "image_url", "input_audio", "file")
_USER_BLOCKS = ("text", "image", "document", "tool_result", "search_result")
_ASSISTANT_BLOCKS = (
    "text",
    "tool_use",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
)


def check_request(body: Mapping[str, Any], format: Literal["openai-chat", "anthropic"]) -> list[str]:
    """What is wrong with the body of a request.

    Args:
        body: The JSON object.
        format: Whose rules apply.

    Returns:
        One sentence for each violation, with the place; empty if there is none.
    """
    return list(_chat(body) if format == "openai-chat" else _messages(body))


# ---- Chat Completions ------------------------------------------------------------------------------------------------


def _chat(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: a name is required"
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one is required"
        return
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        role = message.get("role")
        if role == "tool":
            yield from _chat_result(message, where, open_ids)
            continue
        if open_ids:
            yield f"{where}: tool calls {open_ids} of the message before are not answered"
            open_ids = []
        if role == "assistant":
            open_ids = [str(call.get("id")) for call in message.get("tool_calls") or ()]
            yield from _chat_assistant(message, where)
        elif role in ("system", "developer", "user"):
            yield from _chat_content(message.get("content"), where, parts=role == "user")
        else:
            yield f"{where}: unknown role {role!r}"
    if open_ids:
        yield f"messages: tool calls {open_ids} are not answered"
    if not any(message.get("role") not in ("system", "developer") for message in messages):
        yield "messages: nothing but system messages"
    yield from _chat_tools(body)


def _chat_result(message: Mapping[str, Any], where: str, open_ids: list[str]) -> Iterator[str]:
    call_id = message.get("tool_call_id")
    if call_id in open_ids:
        open_ids.remove(call_id)
    else:
        yield f"{where}: answers {call_id!r}, which the message before did not call"
    yield from _chat_content(message.get("content"), where, parts=False)


def _chat_assistant(message: Mapping[str, Any], where: str) -> Iterator[str]:
    calls = message.get("tool_calls")
    if "tool_calls" in message and not calls:
        yield f"{where}: tool_calls must not be empty"
    if message.get("content") is not None or not calls:
        yield from _chat_content(message.get("content"), where, parts=False)
    seen: set[str] = set()
    for call in calls or ():
        call_id, function = call.get("id"), call.get("function") or {}
        if not isinstance(call_id, str) or not 0 < len(call_id) <= 40:
            yield f"{where}: the call id {call_id!r} must have 1 to 40 characters"
        if call_id in seen:
            yield f"{where}: the call id {call_id!r} is used twice"
        seen.add(str(call_id))
        if call.get("type") != "function":
            yield f"{where}: a call must be of type 'function'"
        if not _CHAT_NAME.fullmatch(str(function.get("name"))):
            yield f"{where}: the tool name {function.get('name')!r} is not allowed"
        if not _is_object_text(function.get("arguments")):
            yield f"{where}: the arguments {function.get('arguments')!r} are not a JSON object"


def _chat_content(content: object, where: str, *, parts: bool) -> Iterator[str]:
    if isinstance(content, str):
        if not content.strip():
            yield f"{where}: content is blank"
        return
    if not parts or not isinstance(content, list) or not content:
        yield f"{where}: content must be {'text or parts' if parts else 'text'}, not {str(content)[:60]!r}"
        return
    for part in content:
        kind = part.get("type")
        if kind not in _CHAT_PARTS:
            yield f"{where}: unknown part {kind!r}"
        elif kind == "text" and not str(part.get("text", "")).strip():
            yield f"{where}: a text part is blank"
        elif kind == "image_url" and not re.match(
            r"https?://|data:image/", (part.get("image_url") or {}).get("url", "")
        ):
            yield f"{where}: an image needs a URL or data"


def _chat_tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools")
    if "tools" in body and not tools:
        yield "tools: must not be empty"
    functions = [tool.get("function") or {} for tool in tools or ()]
    yield from _tools(functions, _CHAT_NAME, "parameters")
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "tool_choice: only with tools"
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if name not in [function.get("name") for function in functions]:
            yield f"tool_choice: there is no tool {name!r}"


# ---- Messages --------------------------------------------------------------------------------------------------------


def _messages(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: a positive number is required"
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one is required"
        return
    yield from _system(body.get("system"))
    if messages[0].get("role") != "user":
        yield "messages[0]: must be of the user"
    if messages[-1].get("role") != "user" and not _is_paused(messages[-1].get("content")):
        yield f"messages[{len(messages) - 1}]: must be of the user"
    seen: set[str] = set()
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        blocks = message.get("content")
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        if role not in ("user", "assistant"):
            yield f"{where}: unknown role {role!r}"
        if not isinstance(blocks, list) or not blocks:
            yield f"{where}: has no content"
            continue
        yield from _answers(blocks, open_ids, where)
        for block in blocks:
            yield from _block(block, role, where)
        open_ids = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        for call_id in open_ids:
            if call_id in seen:
                yield f"{where}: the tool_use id {call_id!r} was used before"
            seen.add(call_id)
        yield from _assistant_order([str(block.get("type")) for block in blocks], where)
    yield from _tools(body.get("tools") or (), _MESSAGES_NAME, "input_schema")


def _is_paused(content: object) -> bool:
    """Whether the provider may have paused in this message: only its own tools make it do so."""
    blocks = content if isinstance(content, list) else []
    return any(block.get("type") in ("server_tool_use", "mcp_tool_use") for block in blocks)


def _system(system: object) -> Iterator[str]:
    texts = [system] if isinstance(system, str) else [block.get("text") for block in system or ()]  # type: ignore[attr-defined]
    if any(not isinstance(text, str) or not text.strip() for text in texts):
        yield "system: a text is blank"


def _answers(blocks: Sequence[Mapping[str, Any]], open_ids: Sequence[str], where: str) -> Iterator[str]:
    answered = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    kinds = [block.get("type") for block in blocks]
    if sorted(map(str, answered)) != sorted(open_ids):
        yield f"{where}: answers {answered}, the calls before it are {list(open_ids)}"
    if answered and "tool_result" in kinds[next((i for i, k in enumerate(kinds) if k != "tool_result"), len(kinds)) :]:
        yield f"{where}: results must come before everything else"


def _block(block: Mapping[str, Any], role: object, where: str) -> Iterator[str]:
    kind = block.get("type")
    if kind not in (_USER_BLOCKS if role == "user" else _ASSISTANT_BLOCKS):
        yield f"{where}: a {kind!r} block is not allowed here"
    if kind == "text" and not str(block.get("text", "")).strip():
        yield f"{where}: a text block is blank"
    if kind == "thinking" and not block.get("signature"):
        yield f"{where}: a thinking block has no signature"
    if kind == "tool_use":
        if not _MESSAGES_ID.fullmatch(str(block.get("id"))):
            yield f"{where}: the tool_use id {block.get('id')!r} is not allowed"
        if not _MESSAGES_NAME.fullmatch(str(block.get("name"))):
            yield f"{where}: the tool name {block.get('name')!r} is not allowed"
        if not isinstance(block.get("input"), dict):
            yield f"{where}: the input of a call must be an object"
    if kind == "tool_result" and isinstance(block.get("content"), list):
        for inner in block["content"]:
            if inner.get("type") == "text" and not str(inner.get("text", "")).strip():
                yield f"{where}: a text in a result is blank"


def _assistant_order(kinds: Sequence[str], where: str) -> Iterator[str]:
    if "tool_use" in kinds and any(kind != "tool_use" for kind in kinds[kinds.index("tool_use") :]):
        yield f"{where}: something follows a call; calls must come last"
    if "tool_use" in kinds and "thinking" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        yield f"{where}: with calls, thinking must come first"


# ---- both ------------------------------------------------------------------------------------------------------------


def _tools(tools: Sequence[Mapping[str, Any]], allowed: re.Pattern[str], schema: str) -> Iterator[str]:
    seen: set[str] = set()
    for at, tool in enumerate(tools):
        if schema not in tool and "type" in tool:
            continue  # one of the provider's own
        name = str(tool.get("name"))
        if not allowed.fullmatch(name):
            yield f"tools[{at}]: the name {name!r} is not allowed"
        if name in seen:
            yield f"tools[{at}]: the name {name!r} is used twice"
        seen.add(name)
        if not isinstance(tool.get(schema), dict) or tool[schema].get("type") != "object":
            yield f"tools[{at}]: {schema} must be the schema of an object"


def _is_object_text(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False
