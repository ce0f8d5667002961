"""Checks that a conversation obeys the message-order rules of every provider.

A history that breaks one of them makes each later request of its session fail with a 400, so the session is lost. The
checks work on Trilane's own messages, and so find the fault where it is made, without a provider.

Some things a provider adapter does by itself, whatever the history looks like, and are therefore no violations: it
joins neighbours of one role, lifts system messages out, leaves out blank text and reasoning it cannot send back, writes
"(no output)" for an empty result, and renames ids and tools that its provider would not take (characters, length, an id
that an earlier message had).

Where the rules come from, as the providers' own error texts report them:

- Chat Completions: every call of a message must be answered by the tool messages right after it, and nothing else may
  be; https://github.com/microsoft/promptflow/pull/3130
- Responses: a reasoning item must be followed by the item it led to; https://github.com/vercel/ai/issues/7099
- Messages (Anthropic): results right after their calls, https://github.com/anthropics/claude-code/issues/8210; ids
  unique, https://github.com/NachoSEO/claudegram/issues/12; texts not empty,
  https://github.com/anthropics/claude-code/issues/6774; a message with calls and thinking starts with the thinking,
  https://github.com/deepset-ai/haystack-core-integrations/issues/2146; calls come last in their message (text after a
  call is reported as a missing result)
- Gemini: as many results as calls, https://github.com/microsoft/vscode/issues/299295; a call only after a user message
  or a result, https://github.com/google-gemini/gemini-cli/issues/11814; a conversation starts with the user,
  https://github.com/NousResearch/hermes-agent/issues/55427, and a request ends with the user or a result,
  https://github.com/songquanpeng/one-api/issues/836
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from trilane.messages import AssistantMessage, AssistantPart, Message, ToolCall, ToolMessage, UserMessage, clean_text

__all__ = ["PROVIDERS", "Provider", "assert_history", "check_history"]

Provider: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]

#: Providers whose rules are known.
PROVIDERS: tuple[Provider, ...] = ("openai-chat", "openai-responses", "anthropic", "gemini")


def check_history(
    messages: Sequence[Message], provider: Provider | Literal["all"] = "all", *, as_request: bool = False
) -> list[str]:
    """What is wrong with a conversation.

    Args:
        messages: The conversation, oldest first.
        provider: Whose rules apply besides the common ones; `all` for everybody's.
        as_request: The messages are what a model is asked, so the last one must be the user's, tool results, or an
            answer that the provider paused.

    Returns:
        One sentence for each violation, with the number and kind of the message; empty if there is none.

    Raises:
        ValueError: an unknown provider.
    """
    if provider != "all" and provider not in PROVIDERS:
        raise ValueError(f"unknown provider {provider!r}; known are all, {', '.join(PROVIDERS)}")
    providers = PROVIDERS if provider == "all" else (provider,)
    return [*_common(messages), *_of_providers(messages, providers, as_request)]


def assert_history(
    messages: Sequence[Message], provider: Provider | Literal["all"] = "all", *, as_request: bool = False
) -> None:
    """Check a conversation with `check_history`.

    Raises:
        AssertionError: it breaks a rule; the message lists what is wrong and then the conversation.
    """
    problems = check_history(messages, provider, as_request=as_request)
    if problems:
        lines = [f"  {_where(position, message)}: {message!r}" for position, message in enumerate(messages)]
        raise AssertionError("\n".join(["the history is not valid:", *problems, "the messages:", *lines]))


# ---- rules of all providers ------------------------------------------------------------------------------------------


def _common(messages: Sequence[Message]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for position, message in enumerate(messages):
        where = _where(position, message)
        if not message.id:
            yield f"{where}: has no id"
        elif message.id in seen:
            yield f"{where}: its id {message.id!r} is that of message {seen[message.id]}, too"
        seen.setdefault(message.id, position)
        yield from (f"{where}: {problem}" for problem in _content(message))
    yield from _pairing(messages)


def _content(message: Message) -> Iterator[str]:
    if message.kind == "system":
        texts = [message.text]
        if not message.text.strip():
            yield "has no text"
    elif message.kind == "tool":
        texts = _result_texts(message)
        if not message.results:
            yield "has no results"
    else:
        texts = [part.text for part in message.parts if part.kind == "text"]
        if not any(_says_something(part) for part in message.parts):
            yield "is empty: no part, or only blank text" if message.parts else "is empty: it has no part"
    if message.kind == "assistant":
        yield from _calls(message.calls)
    if any(clean_text(text) != text for text in texts):
        yield "has a NUL or half a surrogate pair in its text, which cannot be stored or sent"


def _calls(calls: Sequence[ToolCall]) -> Iterator[str]:
    seen: set[str] = set()
    for call in calls:
        if not call.id:
            yield f"the call of {call.name!r} has no id"
        elif call.id in seen:
            yield f"two calls have the id {call.id!r}"
        seen.add(call.id)
        if not call.name:
            yield f"call {call.id!r} has no tool name"
        try:
            json.dumps(dict(call.arguments), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            yield f"the arguments of call {call.id!r} are not a JSON object: {error}"


def _pairing(messages: Sequence[Message]) -> Iterator[str]:
    """Every call answered once, directly after its message, in call order; every result of a call."""
    for position, message in enumerate(messages):
        before = messages[position - 1] if position else None
        after = messages[position + 1] if position + 1 < len(messages) else None
        where = _where(position, message)
        if message.kind == "assistant" and message.calls:
            if not isinstance(after, ToolMessage):
                missing = ", ".join(repr(call.id) for call in message.calls)
                found = "nothing" if after is None else f"a {after.kind} message"
                yield f"{where}: calls {missing} are not answered; {found} follows instead of their results"
            else:
                yield from _answers(where, message, after)
        if message.kind == "tool" and not (isinstance(before, AssistantMessage) and before.calls):
            found = "nothing" if before is None else f"one of kind {before.kind}"
            yield f"{where}: results need a message with calls directly before them, there is {found}"


def _answers(where: str, message: AssistantMessage, after: ToolMessage) -> Iterator[str]:
    asked = [call.id for call in message.calls]
    answered = [result.call_id for result in after.results]
    if asked == answered:
        return
    problems = [f"call {call_id!r} is not answered" for call_id in asked if call_id not in answered]
    problems += [f"a result for {call_id!r}, which was not called" for call_id in answered if call_id not in asked]
    for call_id in dict.fromkeys(asked):
        if answered.count(call_id) > asked.count(call_id):
            problems.append(f"call {call_id!r} is answered {answered.count(call_id)} times")
    if not problems:
        problems.append(f"the results are in the order {answered}, the calls in the order {asked}")
    for problem in problems:
        yield f"{where}: {problem}"


# ---- rules of some ---------------------------------------------------------------------------------------------------


def _of_providers(messages: Sequence[Message], providers: Sequence[Provider], as_request: bool) -> Iterator[str]:
    talk = [(position, message) for position, message in enumerate(messages) if message.kind != "system"]
    anthropic, gemini = "anthropic" in providers, "gemini" in providers
    strict = [name for name, applies in (("anthropic", anthropic), ("gemini", gemini)) if applies]
    if as_request and not talk:
        yield "there is no message to answer"
    if talk and strict and talk[0][1].kind == "assistant":
        yield f"{_where(*talk[0])}: the conversation must start with the user ({', '.join(strict)})"
    if talk and as_request and strict and _is_answer(talk[-1][1]):
        yield f"{_where(*talk[-1])}: a request must end with the user or tool results ({', '.join(strict)})"
    for position, message in talk:
        if message.kind != "assistant":
            continue
        where = _where(position, message)
        if anthropic:
            yield from (f"{where}: {problem} (anthropic)" for problem in _anthropic_order(message.parts))
        # What an adapter sends of an interrupted message is its text only.
        if "openai-responses" in providers and not message.interrupted and _dangling_reasoning(message.parts):
            yield f"{where}: signed reasoning must be followed by what it led to (openai-responses)"


def _is_answer(message: Message) -> bool:
    # A paused message is sent back as it is, for the model to go on with.
    return message.kind == "assistant" and message.stop_reason != "pause"


def _anthropic_order(parts: Sequence[AssistantPart]) -> Iterator[str]:
    kinds = [part.kind for part in parts if _says_something(part)]
    if "tool_call" not in kinds:
        return
    later = kinds[kinds.index("tool_call") :]
    others = sorted({kind for kind in later if kind != "tool_call"})
    if others:
        yield f"calls must come last in their message, {' and '.join(others)} follows one"
    signed = [part.kind == "reasoning" and bool(part.signature) for part in parts]
    if any(signed) and parts[0].kind != "reasoning":
        yield f"with calls, reasoning must come first in its message, {parts[0].kind} does"


def _dangling_reasoning(parts: Sequence[AssistantPart]) -> bool:
    last = parts[-1] if parts else None
    return last is not None and last.kind == "reasoning" and bool(last.signature)


# ---- words -----------------------------------------------------------------------------------------------------------


def _says_something(part: AssistantPart) -> bool:
    if part.kind == "text":
        return bool(part.text.strip())
    if part.kind == "reasoning":
        return bool(part.text.strip() or part.signature or part.extra is not None)
    return True


def _result_texts(message: ToolMessage) -> list[str]:
    texts: list[str] = []
    for result in message.results:
        pieces = (result.content,) if isinstance(result.content, str) else result.content
        texts += [piece for piece in pieces if isinstance(piece, str)]
    return texts


def _where(position: int, message: Message) -> str:
    kind = f"{message.origin} of the user" if isinstance(message, UserMessage) else message.kind
    return f"message {position} ({kind})"
