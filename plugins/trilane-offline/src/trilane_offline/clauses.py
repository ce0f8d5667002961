"""Takes a request apart into clauses, each of which asks for one thing, and fills in what a clause leaves unsaid.

"read README.md and count its words" is two clauses, the second of which means the file of the first. What a clause is
answered with is decided in `plan.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .entities import Entity, Kind, find_entities, is_file
from .words import NEGATIONS, starts_request, stem, stems, tokens

__all__ = ["EXTREMES", "LOOKED_AT", "Clause", "carry", "is_follow_up", "make_clause", "split", "substitute"]

LOOKED_AT = 4000
"""Characters of a request that are looked at."""

EXTREMES = {
    "most": "most",
    "largest": "most",
    "longest": "most",
    "biggest": "most",
    "fewest": "fewest",
    "least": "fewest",
    "smallest": "fewest",
    "shortest": "fewest",
}
"""Words for an end of an order, and the end they mean."""

_MOST_CLAUSES = 24
_QUOTES = re.compile(r'"[^"\n]{1,500}"|“[^”\n]{1,500}”|`[^`\n]{1,500}`|(?<!\w)\'[^\'\n]{1,500}\'(?!\w)')
_HARD = re.compile(r";|\n|[?!](?=\s|$)|\.(?=\s|$)|,?\s(?:and\s)?then\s")
_SOFT = re.compile(r",?\s(?:and also|and|as well as|but|or)\s|,\s")
_TARGET = re.compile(
    r"\b(?:how many|how much|number of|amount of|most|fewest|least|more)\s+"
    r"(?:different\s+|the\s+|of\s+the\s+)?([a-z]+)|"
    r"\bcount\s+(?:up\s+)?(?:all\s+|the\s+|every\s+|its\s+)*([a-z]+)",
    re.I,
)
_WHOLE = re.compile(r"\W*(?:please\s+)?(?:if|unless|when|whenever|before|once|do not|don['’]?t|never|without)\b", re.I)
_FOLLOW_UP = re.compile(r"^\W*(?:and|also|or|what about|how about|same|now|then|ok|okay|but)\b", re.I)
_HOW_MANY = re.compile(r"\b(?:how many|how much|number of|count)\b", re.I)


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that is asked for.

    Attributes:
        text: Its words.
        entities: What they mention.
        plain: The words with what is mentioned blanked out, so that a file name does not count as a verb.
        stems: The stems of `plain`, without stop words.
        target: Stem of the noun that is counted or compared ("how many WORDS"), or empty.
        counts: Whether it asks for a number of things.
        extreme: `most`, `fewest`, or empty.
    """

    text: str
    entities: tuple[Entity, ...]
    plain: str
    stems: tuple[str, ...] = field(default=())
    target: str = ""
    counts: bool = False
    extreme: str = ""

    @property
    def words(self) -> list[str]:
        """The words of `plain` in lower case, stop words included."""
        return tokens(self.plain)

    @property
    def negated(self) -> bool:
        """Whether it says that something should not be done."""
        return bool(NEGATIONS.intersection(re.findall(r"[\w'’]+", self.plain.lower())))

    def of_kind(self, *kinds: Kind) -> list[Entity]:
        """What it mentions of some kinds."""
        return [entity for entity in self.entities if entity.kind in kinds]


def make_clause(text: str) -> Clause:
    """The clause with these words."""
    entities = find_entities(text)
    plain = _blanked(text, entities)
    match = _TARGET.search(plain)
    target = stem((match[1] or match[2]).lower()) if match else ""
    words = set(tokens(plain))
    ends = {EXTREMES[word] for word in words if word in EXTREMES}
    extreme = "fewest" if "fewest" in ends else "most" if ends else ""
    counts = bool(target) and _HOW_MANY.search(plain) is not None
    return Clause(text, entities, plain, (*stems(plain), *_implied(plain, entities)), target, counts, extreme)


def _implied(plain: str, entities: Sequence[Entity]) -> list[str]:
    """Stems for what is meant without a word for it: "what is in src", "is there", "2 + 3"."""
    found = [stem(verb) for entity in entities for verb in entity.values if entity.kind == "expression"]
    if any(entity.kind in ("number", "span") and entity.unit == "lin" for entity in entities):
        found.append("read")
    if re.search(r"\b(?:is|are) there\b", plain, re.I):
        found.append("exist")
    if re.match(r"\W*what(?:['’]?s| is| are)\s+(?:in|inside)\b", plain, re.I):
        places = [entity for entity in entities if entity.kind == "path"]
        found += ["content"] if any(is_file(entity) for entity in places) else ["list", "fil"]
    return found


def _blanked(text: str, entities: Sequence[Entity]) -> str:
    for entity in sorted(entities, key=lambda entity: -entity.start):
        if entity.kind in ("name", "number", "span", "date") or (entity.kind == "topic" and entity.lead == "for"):
            continue
        filler = "files" if entity.kind == "type" else ""
        text = f"{text[: entity.start]} {filler} {text[entity.end :]}"
    return text


def split(text: str, verbs: frozenset[str] = frozenset()) -> tuple[Clause, ...]:
    """The clauses of the first `LOOKED_AT` characters of a request, at most 24.

    Args:
        text: The request.
        verbs: Stems that begin a clause besides the known verbs: the first words of the names of the tools.
    """
    text = text[:LOOKED_AT]
    masked = _QUOTES.sub(lambda match: "\x01" * len(match[0]), text)
    pieces: list[str] = []
    for start, end in _between(masked, [match.span() for match in _HARD.finditer(masked)]):
        cuts = list(_SOFT.finditer(masked, start, end))
        if _WHOLE.match(text[start:end]):  # a condition or a "do not" holds for the whole sentence
            cuts = []
        soft = [match.span() for match in cuts if _stands_alone(match[0], text[match.end() : end], verbs)]
        pieces += [text[left:right].strip(" ,\t\r") for left, right in _between(masked, soft, start, end)]
    return tuple([make_clause(piece) for piece in pieces if any(map(str.isalnum, piece))][:_MOST_CLAUSES])


def _stands_alone(cut: str, text: str, verbs: frozenset[str]) -> bool:
    """Whether what follows a cut is a clause: it begins as one, or it comes after "and" and mentions nothing."""
    if starts_request(text, verbs):
        return True
    if "and" not in cut:
        return False
    start = text[:200]
    return len(stems(start)) > 1 and not find_entities(start)


def _between(
    text: str, cuts: Sequence[tuple[int, int]], start: int = 0, end: int | None = None
) -> list[tuple[int, int]]:
    spans = []
    for left, right in cuts:
        spans.append((start, left))
        start = right
    spans.append((start, len(text) if end is None else end))
    return spans


def is_follow_up(clause: Clause) -> bool:
    """Whether a clause leans on the message before: it begins with "and", or only names something."""
    rest = _FOLLOW_UP.sub("", clause.text, count=1)
    if _FOLLOW_UP.match(clause.text) and not starts_request(rest):
        return True
    return bool(clause.entities) and not clause.stems


def substitute(old: Clause, new: Clause) -> Clause | None:
    """`old` with the things of `new` in place of its own of the same kind; None if they have no kind in common."""
    text, changed = old.text, False
    kinds: tuple[Kind, ...] = (
        "path",
        "type",
        "glob",
        "quoted",
        "topic",
        "url",
        "email",
        "number",
        "expression",
        "name",
    )
    for kind in kinds:
        fresh = new.of_kind(kind)
        replaced = make_clause(text).of_kind(kind)
        if kind in ("type", "glob") and fresh and not replaced:
            replaced = old.of_kind("type", "glob")
        if not fresh or not replaced or (kind in ("topic", "name") and changed):
            continue
        words = " and ".join([_wording(new, entity) for entity in fresh])
        for index, entity in reversed(list(enumerate(replaced))):
            text = text[: entity.start] + (words if index == 0 else "") + text[entity.end :]
        text = re.sub(r"(?:\s+and|,)+\s*$", "", re.sub(r"\b(and|or)\s+(?=and\b|or\b|in\b|$)", "", text))
        changed = True
    return make_clause(text) if changed else None


def _wording(clause: Clause, entity: Entity) -> str:
    raw = clause.text[entity.start : entity.end].strip()
    bare = entity.kind == "type" and not re.search(r"(?:files?|documents?|docs|sources?|scripts?|modules?)$", raw, re.I)
    return f"{raw} files" if bare else raw


def carry(clause: Clause, earlier: Sequence[Clause], kinds: Sequence[Kind]) -> Clause | None:
    """`clause` with the things of these kinds that the nearest earlier clause mentions; None if none does."""
    for other in earlier:
        found = other.of_kind(*kinds)
        if found:
            words = " and ".join([_wording(other, entity) for entity in found])
            place = "in " if found[0].weak else ""
            return make_clause(f"{clause.text.rstrip(' ?!.')} {place}{words}")
    return None
