"""From the text of a request and the tools at hand to tool calls. Pure and deterministic.

A clause goes to the tool whose name, description and parameters fit it best, provided its arguments can be filled. A
tool whose name or description begins with a verb of change (delete, send, write, ...) is called only for an order that
uses that verb: never for a question, a condition or a negation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clauses import EXTREMES, LOOKED_AT, Clause, carry, is_follow_up, make_clause, split, substitute
from .entities import Entity
from .fill import Filled, Parameter, fill, parameters_of
from .words import CHANGING, related, stem, stems, tokens, word_set

if TYPE_CHECKING:
    from pydantic import JsonValue

    from trilane.models import ToolSpec

__all__ = ["Each", "Miss", "Plan", "PlannedCall", "Step", "make_plan"]

_THRESHOLD = 2.0
_MOST_TOOLS = 256
_DESCRIPTION = 400
_EACH = re.compile(
    r"\b(?:each|every|all|any)\b(?:\s+(?:of\s+)?\w+){0,2}\s+(?:files?|documents?)\b|\b(?:each|every)\b", re.I
)
_THEM = re.compile(r"\b(?:each|every|them|those|these|they|their|that|it|its)\b", re.I)
_QUESTIONS = word_set("how what why when who whom whose which where is are was were did does do has have should if")
_POLITE = word_set("please can could will would you now also then and let's kindly")
_USE = word_set("use call run invoke")
_CONDITIONS = word_set("if unless whether before when")
_LISTING = word_set("list find search glob ls enumerat")


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a tool at hand, with arguments its schema accepts."""

    tool: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Each:
    """Calls that follow from a first result: `tool` once for every item that `source` returns."""

    tool: str
    parameter: str
    arguments: Mapping[str, JsonValue]
    source: PlannedCall


@dataclass(frozen=True, slots=True)
class Step:
    """What one clause leads to: calls, or an `Each`."""

    clause: Clause
    calls: tuple[PlannedCall, ...] = ()
    each: tuple[Each, ...] = ()


@dataclass(frozen=True, slots=True)
class Miss:
    """A clause without calls, and why; the reason is empty if no tool fits."""

    text: str
    reason: str = ""


@dataclass(slots=True)
class Plan:
    """Steps in the order of the clauses, and what could not be planned.

    Attributes:
        steps: Clauses with their calls.
        misses: Clauses without.
        notes: What was left out, for the answer.
    """

    steps: list[Step] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def first_calls(self) -> tuple[PlannedCall, ...]:
        """The calls to begin with, in order and without repetitions."""
        found: list[PlannedCall] = []
        for step in self.steps:
            for call in (*step.calls, *[each.source for each in step.each]):
                if call not in found:
                    found.append(call)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Profile:
    """The words of one tool."""

    spec: ToolSpec
    parameters: tuple[Parameter, ...]
    name: frozenset[str]
    near: frozenset[str]
    description: frozenset[str]
    details: frozenset[str]
    changes: frozenset[str]


@dataclass(slots=True)
class _Choice:
    profile: _Profile
    filled: Filled
    score: float


def make_plan(texts: Sequence[str], tools: Sequence[ToolSpec]) -> Plan:
    """The plan for the last of `texts`, the user's messages, oldest first; earlier ones say what it leaves out."""
    planner = _Planner(tools)
    plan = Plan()
    if not texts:
        return plan
    planner.siblings = planner.clauses(texts)
    for clause in planner.siblings:
        planner.add(plan, clause)
    if len(texts[-1]) > LOOKED_AT:
        plan.notes.append(f"I looked only at the first {LOOKED_AT} of the {len(texts[-1])} characters of the request.")
    return plan


def _profile(spec: ToolSpec) -> _Profile:
    parameters = parameters_of(spec)
    name = frozenset(stems(spec.name)) or frozenset(map(stem, tokens(spec.name)))
    words = stems(spec.description.strip()[:_DESCRIPTION].split("\n\n", 1)[0])
    details: set[str] = set()
    for parameter in parameters:
        details.update(stems(parameter.name), parameter.words)
    details -= related("count")
    near = frozenset(other for word in name for other in related(word)) - name
    changes = (name | frozenset(words[:1])) & CHANGING
    return _Profile(spec, parameters, name, near, frozenset(words), frozenset(details), changes)


class _Planner:
    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.profiles = [_profile(tool) for tool in tools[:_MOST_TOOLS]]
        self.verbs = frozenset(stem(words[0]) for tool in tools[:_MOST_TOOLS] if (words := tokens(tool.name)))
        self.spread: dict[str, int] = {}
        for profile in self.profiles:
            for word in profile.name:
                self.spread[word] = self.spread.get(word, 0) + 1
        self.earlier: list[Clause] = []
        self.siblings: list[Clause] = []

    # Clauses, with what earlier ones say

    def clauses(self, texts: Sequence[str]) -> list[Clause]:
        """The clauses of the last text, follow-ups resolved against the texts before it."""
        known: list[Clause] = []
        for text in texts:
            found: list[Clause] = []
            for clause in split(text, self.verbs):
                found += self._resolved(clause, known) or [clause]
            self.earlier, known = known[::-1], found
        return known

    def _resolved(self, clause: Clause, known: Sequence[Clause]) -> list[Clause]:
        if not known or not is_follow_up(clause):
            return []
        changed = [fresh for old in known if (fresh := substitute(old, clause))]
        return [fresh for fresh in changed if self.choose(fresh)]

    # One clause

    def add(self, plan: Plan, clause: Clause) -> None:
        """Plan one clause."""
        if clause.negated and not clause.of_kind("quoted") and clause.words[:1] not in (["what"], ["which"], ["how"]):
            plan.misses.append(Miss(clause.text, "it says what not to do, so nothing was done for it"))
            return
        best = self._best(clause)
        step = self._each(plan, clause, best) if best else None
        if step is None and best and not best.filled.calls:
            clause, best = self._with_earlier(plan, clause, best)
        if step is None and best and best.filled.calls:
            calls = tuple([PlannedCall(best.profile.spec.name, call) for call in best.filled.calls])
            step = Step(clause, calls)
            if best.filled.left_out:
                plan.notes.append(f"{best.filled.left_out} more calls of {best.profile.spec.name} were left out.")
        if step is not None:
            plan.steps.append(step)
            plan.notes += [*_unused(clause, step, best), *_not_compared(clause, step)]
        elif best is not None or self._looks_like_request(clause):
            plan.misses.append(Miss(clause.text, self._reason(clause, best)))

    def _looks_like_request(self, clause: Clause) -> bool:
        return bool(clause.stems) or bool(clause.entities)

    def _reason(self, clause: Clause, best: _Choice | None) -> str:
        if best is None:
            return self._reason_for_refusal(clause)
        name = best.profile.spec.name
        if best.filled.problem:
            return f"{name} fits, but {best.filled.problem}"
        if best.filled.missing:
            names = " and ".join([f"`{missing}`" for missing in best.filled.missing])
            return f"{name} fits, but the request does not say its {names}"
        return ""

    def _reason_for_refusal(self, clause: Clause) -> str:
        refused = [p for p in self.profiles if not _may_change(p, clause) and self._word_score(p, clause) >= _THRESHOLD]
        if not refused:
            return ""
        return f"{refused[0].spec.name} changes something, so it needs a plain order that begins with its verb"

    def _best(self, clause: Clause) -> _Choice | None:
        """The best tool that can be called; else the best that could be if more were said."""
        choices = self._choices(clause)
        ready = [choice for choice in choices if choice.filled.calls]
        best = max(ready, key=lambda choice: choice.score, default=None)
        wished = max(choices, key=lambda choice: choice.score, default=None)
        if best is None or (wished is not None and wished.score > best.score + 1.5):
            return wished
        return best

    def choose(self, clause: Clause) -> _Choice | None:
        """The tool for a clause, if one can be called for it."""
        best = self._best(clause)
        return best if best and (best.filled.calls or self._files_parameter(best)) else None

    def _choices(self, clause: Clause) -> list[_Choice]:
        found = []
        for profile in self.profiles:
            words = self._word_score(profile, clause)
            if words < _THRESHOLD or not _may_change(profile, clause):
                continue
            filled = fill(profile.spec, clause.text, clause.entities)
            score = words + _entity_score(clause.entities, filled) - 2.0 * len(filled.missing)
            choice = _Choice(profile, filled, score)
            kinds = clause.of_kind("type", "glob")
            if kinds and filled.missing and self._files_parameter(choice):
                choice.score += 2.0 + 3.0 * len(kinds)  # a list of these files will give it its file
            found.append(choice)
        return found

    def _word_score(self, profile: _Profile, clause: Clause) -> float:
        score = 6.0 if _is_named(profile.spec.name, clause.plain) else 0.0
        for word in dict.fromkeys(clause.stems):
            weight = self.spread.get(word, 1) ** -0.5
            near = related(word)
            if word in profile.name:
                score += 3.0 * weight
            elif word in profile.near:
                score += 2.0
            elif word in profile.description:
                score += 1.0
            elif near & profile.description or word in profile.details:
                score += 0.5
        return score + _target_score(profile, clause) if score else 0.0

    # Things a clause leaves unsaid

    def _with_earlier(self, plan: Plan, clause: Clause, best: _Choice) -> tuple[Clause, _Choice]:
        """The clause with the files, addresses or texts of a clause nearby."""
        earlier = [step.clause for step in reversed(plan.steps)] + self.siblings + self.earlier
        roles = {parameter.role for parameter in best.profile.parameters if parameter.name in best.filled.missing}
        fresh = None
        if roles & {"file", "folder"}:
            fresh = carry(clause, earlier, ("path",))
        elif "url" in roles:
            fresh = carry(clause, earlier, ("url",))
        elif "text" in roles and _THEM.search(clause.plain):
            fresh = carry(clause, earlier, ("quoted",))
        if fresh is None:
            return clause, best
        filled = fill(best.profile.spec, fresh.text, fresh.entities)
        return (fresh, _Choice(best.profile, filled, best.score)) if filled.calls else (clause, best)

    def _files_parameter(self, choice: _Choice) -> Parameter | None:
        """The parameter that takes one file, of a tool that takes no pattern."""
        parameters = choice.profile.parameters
        if any(parameter.role == "glob" for parameter in parameters):
            return None
        found = [p for p in parameters if p.role == "file" and p.required and not p.is_list]
        others = [name for name in choice.filled.missing if found and name != found[0].name]
        return found[0] if len(found) == 1 and not others else None

    def _each(self, plan: Plan, clause: Clause, best: _Choice) -> Step | None:
        """Two steps, if the clause speaks of a set of files and the tool takes one file."""
        parameter = self._files_parameter(best)
        kinds = clause.of_kind("type", "glob")
        if (
            parameter is None
            or best.profile.changes
            or any(not e.weak and _has_extension(e) for e in clause.of_kind("path"))
        ):
            return None
        if kinds or (_EACH.search(clause.plain) and re.search(r"\bfiles?\b", clause.plain, re.I)):
            sources = self._listing(clause)
        elif _THEM.search(clause.plain) and (best.filled.missing or not best.filled.calls):
            sources = self._earlier_listing(plan)
        else:
            return None
        if not sources:
            return None
        rest = dict(best.filled.calls[0]) if best.filled.calls else {}
        rest.pop(parameter.name, None)
        name = best.profile.spec.name
        return Step(clause, (), tuple([Each(name, parameter.name, rest, source) for source in sources]))

    def _listing(self, clause: Clause) -> list[PlannedCall]:
        """The calls that list the files a clause speaks of."""
        kinds = [clause.text[entity.start : entity.end] for entity in clause.of_kind("type", "glob")]
        places = [entity.text for entity in clause.of_kind("path")]
        where = " in " + " and ".join(places) if places else ""
        wanted = make_clause(f"list {' and '.join(kinds) if kinds else 'all files'}{where}")
        choices = [
            c for c in self._choices(wanted) if c.filled.calls and _LISTING & c.profile.name and not c.profile.changes
        ]
        best = max(choices, key=lambda choice: choice.score, default=None)
        if best is None or (kinds and not best.filled.used):
            return []
        return [PlannedCall(best.profile.spec.name, call) for call in best.filled.calls]

    def _earlier_listing(self, plan: Plan) -> list[PlannedCall]:
        listing = {profile.spec.name for profile in self.profiles if _LISTING & profile.name}
        for step in reversed(plan.steps):
            found = [call for call in (*step.calls, *[each.source for each in step.each]) if call.tool in listing]
            if found:
                return found
        for clause in self.earlier:
            best = self.choose(clause)
            if best and best.profile.spec.name in listing and best.filled.calls:
                return [PlannedCall(best.profile.spec.name, call) for call in best.filled.calls]
        return []


def _unused(clause: Clause, step: Step, best: _Choice | None) -> list[str]:
    """A note on what a clause mentions and no argument has, so that the answer does not seem to respect it."""
    given = [call.arguments for call in (*step.calls, *[each.source for each in step.each])]
    given += [each.arguments for each in step.each]
    spoken = " ".join([str(value) for arguments in given for value in arguments.values()])
    used = best.filled.used if best else set()
    left = []
    for entity in clause.entities:
        values = [value.rsplit("/", 1)[-1] for value in entity.values] or [entity.text]
        heard = entity in used or any(value in spoken for value in values)
        if not (heard or entity.weak or (entity.lead == "last" and entity.unit == "lin")):
            left.append(entity.text)
    return [f"I could not take this into account: {', '.join(left)} (in “{clause.text[:120]}”)."] if left else []


def _not_compared(clause: Clause, step: Step) -> list[str]:
    """A note where the largest or the fewest of something is asked for and there are no numbers to compare."""
    if not clause.extreme or step.each or len(step.calls) > 1:
        return []
    word = next((word for word in clause.words if word in EXTREMES), clause.extreme)
    return [
        f"I did not look for the {word} (in “{clause.text[:120]}”): I compare only what I count, "
        "as in “Which Markdown file has the most words?”."
    ]


def _has_extension(entity: Entity) -> bool:
    return "." in entity.text.strip("./")


def _is_named(name: str, text: str) -> bool:
    return ("_" in name or "-" in name) and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", text) is not None


def _target_score(profile: _Profile, clause: Clause) -> float:
    """How well the noun that is counted fits: "how many words" is for a tool that knows of words."""
    target = clause.target
    if not target:
        return 0.0
    informs = 0.8 if "info" in profile.name and clause.counts else 0.0
    if target in profile.name:
        if not clause.counts:
            return 5.0 if clause.extreme else 3.0
        return 4.0 if profile.name & _LISTING or profile.near & {"many"} else 1.5
    if target in profile.near or related(target) & profile.name:
        return 1.0 + informs
    return (1.5 if target in profile.description else -2.0) + informs


def _entity_score(entities: Sequence[Entity], filled: Filled) -> float:
    score = 0.0
    for entity in entities:
        if entity in filled.used:
            score += 0.5 if entity.weak else 1.5
        elif not entity.weak:
            score -= 1.5
    return score


def _may_change(profile: _Profile, clause: Clause) -> bool:
    """Whether a tool may be used although it changes something: only for a plain order with its own verb."""
    if not profile.changes:
        return True
    words = [word for word in clause.words if word not in _POLITE]
    if not words or clause.negated or _CONDITIONS.intersection(clause.words):
        return False
    verbs = profile.changes | frozenset(near for verb in profile.changes for near in related(verb) & CHANGING)
    if stem(words[0]) in verbs:
        return True
    if words[0] in _USE:
        return _is_named(profile.spec.name, clause.plain)
    wish = re.search(r"\b(?:want|need|like) you to (\w+)", clause.plain.lower())
    return wish is not None and words[0] not in _QUESTIONS and stem(wish[1]) in verbs
