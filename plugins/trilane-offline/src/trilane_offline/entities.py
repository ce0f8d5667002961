"""What a request mentions: paths, globs, kinds of files, quoted text, numbers, expressions, topics, names.

Finds things and says where they stand; which tool and which parameter they are for is decided in `fill.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .words import stem, word_set

__all__ = ["Entity", "Kind", "find_entities", "is_file"]

Kind = Literal[
    "quoted", "path", "glob", "type", "number", "expression", "span", "url", "email", "date", "topic", "name"
]


@dataclass(frozen=True, slots=True)
class Entity:
    """Something a request mentions.

    Attributes:
        kind: What it is. `type` is a kind of files ("Markdown files"), `span` are lines ("lines 5 to 10").
        text: The text it stands for, without quotes.
        start: Where it begins in the clause.
        end: Where it ends.
        values: For `type` its globs; for `expression` its operators as verbs.
        numbers: For `number`, `expression` and `span` the numbers, in order.
        unit: For `number` the stem of the noun that follows.
        lead: The word before it, in lower case.
        weak: True for a guess; leaving it unused counts for nothing.
    """

    kind: Kind
    text: str
    start: int
    end: int
    values: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()
    unit: str = ""
    lead: str = ""
    weak: bool = False


_QUOTED = re.compile(
    r'"([^"\n]{1,500})"|“([^”\n]{1,500})”|`([^`\n]{1,500})`|(?<!\w)\'([^\'\n]{1,500})\'(?!\w)|‘([^’\n]{1,500})’'
)
_URL = re.compile(r"https?://[^\s<>\"']+")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_SPAN = re.compile(r"\b(from\s+)?lines?\s+(\d{1,9})(?:\s*(?:-|–|\bto\b|\bthrough\b)\s*(?:line\s+)?(\d{1,9}))?\b", re.I)
_OPERATOR = r"\s{0,3}(?:\*\*|[-+*/×÷^%])\s{0,3}"
_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
_EXPRESSION = re.compile(
    rf"[-+]?\({{0,8}}\s{{0,3}}[-+]?{_NUMBER}\){{0,8}}(?:{_OPERATOR}\({{0,8}}[-+]?{_NUMBER}\){{0,8}})+"
)
_PLAIN_NUMBER = re.compile(rf"(?<![\w.])[-+]?{_NUMBER}(?![\w.]*[^\W\d])")
_NUMBER_NAMES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORDS = {word: number for number, word in enumerate(_NUMBER_NAMES, start=2)}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.I)
_OPERATOR_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "×": "multiply", "/": "divide", "÷": "divide"}

_TOKEN = re.compile(r"\S+")
_EXTENSION = re.compile(r"[\w.@+-]*[\w@+-]\.[A-Za-z][A-Za-z0-9]{0,7}|\.[A-Za-z][\w.-]*")
_BARE_FILES = word_set(
    "LICENSE LICENCE README CHANGELOG CHANGES CONTRIBUTING AUTHORS NOTICE COPYING INSTALL NEWS Makefile Dockerfile "
    "Justfile Procfile Jenkinsfile Vagrantfile Gemfile Rakefile CODEOWNERS"
)
_NOT_PATHS = word_set("e.g i.e etc and/or or/and n/a i/o he/she his/her input/output yes/no")
_TEXT_LEADS = word_set(
    "for about text string containing contains contain mention mentions mentioning phrase expression regex regexp"
)
_SEARCHING = re.compile(r"\b(?:search|find|grep|look|mention|contain|occur|say|says|said)", re.I)

_TYPES: dict[str, tuple[str, ...]] = {
    "markdown": ("*.md",), "md": ("*.md",), "python": ("*.py",), "py": ("*.py",), "text": ("*.txt",),
    "txt": ("*.txt",), "json": ("*.json",), "toml": ("*.toml",), "yaml": ("*.yaml", "*.yml"),
    "yml": ("*.yml", "*.yaml"), "html": ("*.html",), "css": ("*.css",), "javascript": ("*.js",), "js": ("*.js",),
    "typescript": ("*.ts",), "ts": ("*.ts",), "rust": ("*.rs",), "rs": ("*.rs",), "go": ("*.go",), "c": ("*.c",),
    "java": ("*.java",), "csv": ("*.csv",), "xml": ("*.xml",), "shell": ("*.sh",), "sh": ("*.sh",), "ini": ("*.ini",),
    "cfg": ("*.cfg",), "sql": ("*.sql",), "rst": ("*.rst",), "pdf": ("*.pdf",), "png": ("*.png",), "svg": ("*.svg",),
    "jpeg": ("*.jpg", "*.jpeg"), "jpg": ("*.jpg", "*.jpeg"), "log": ("*.log",), "notebook": ("*.ipynb",),
    "stub": ("*.pyi",), "ruby": ("*.rb",), "lock": ("*.lock",),
}  # fmt: skip
_TYPE_WORD = rf"(?:{'|'.join(sorted(_TYPES, key=len, reverse=True))}|\.[A-Za-z][A-Za-z0-9]{{0,7}})"
_FILE_NOUN = r"(?:source\s+)?(?:files?|documents?|docs|sources?|scripts?|modules?)"
_TYPE = re.compile(
    rf"(?<![\w.])({_TYPE_WORD}(?:\s*(?:,|and|or|&|,\s*and)\s*{_TYPE_WORD}){{0,5}})\s+{_FILE_NOUN}\b|"
    rf"(?<![\w.])({_TYPE_WORD})s?(?=\s*[?.!]*$)",
    re.I,
)
_EACH_TYPE = re.compile(_TYPE_WORD, re.I)
_FOLDER = re.compile(
    r"\b([\w.@+-]{1,100})\s+(?:folder|directory|dir)\b|\b(?:folder|directory)\s+([\w.@+-]{1,100})", re.I
)
_PLACE = re.compile(
    r"\b(?:in|under|inside|within|below|from)\s+(?:the\s+)?([A-Za-z_][\w.-]{0,100})"
    r"(?=\s*$|\s*[,;.?!]+(?:\s|$)|\s+(?:and|or|folder|directory|dir|has|have|is|are|contains?|mentions?|with|that)\b)",
    re.I,
)
_NEXT_PLACE = re.compile(r"\s*(?:,|and|or|, and)\s+([A-Za-z_][\w.-]{0,100})(?=\s*$|\s*[,;.?!]|\s+(?:and|or)\b)", re.I)
_NO_PLACES = word_set(
    "the this that these those a an it its them there here each every all both any total general order particular case "
    "which what files file folder directory words lines full detail details short which one memory mind fact line"
)
_TOPIC = re.compile(
    r"\b(?:about|mention(?:s|ing|ed)?|contain(?:s|ing)?)\s+(.{1,300})|"
    r"\b(?:search|grep|look|find|locate)\b(?:\s+[\w.]+){0,3}?\s+for\s+(.{1,300})|"
    r"\b(?:search|grep|find|locate)\s+(.{1,300})|"
    r"\bwhere\s+(?:is|are|does|do)\s+(.{1,300}?)(?:\s+(?:defin|us|mention|occur|appear|come|set|declar|implement)\w*)?[?.!]*$|"
    r"\bfor\s+(.{1,300})",
    re.I,
)
_TOPIC_END = re.compile(r"\s+(?:in|under|inside|within|from|below|using|with|across)\s|[?!;]|[.,](?:\s|$)")
_TOPIC_LEAD = re.compile(
    r"^(?:(?:the|a|an|any|all|every|word|words|text|string|phrase|term|occurrences? of|lines?)\s+)+", re.I
)
_NO_TOPICS = word_set(
    "file files folder folders all every each any everything it them these those this that there here word words line "
    "lines one ones in on out me us you the a an of which what please"
)
_ASKS = re.compile(r"^(?:how|what|which|out|whether)\b|\bof$|^(?:size|number|length|count)\s+of\b", re.I)
_NAME = re.compile(r"\b(?:in|for|of|to|at|from|with|on)\s+((?:[A-Z][\w'-]{0,40})(?:\s+[A-Z][\w'-]{0,40}){0,4})")


def find_entities(text: str) -> tuple[Entity, ...]:
    """What `text`, one clause of a request, mentions, in the order in which it stands there."""
    finder = _Finder(text)
    finder.find_quoted()
    finder.find_simple()
    finder.find_tokens()
    finder.find_types()
    finder.find_numbers()
    finder.find_places()
    finder.find_guesses()
    return tuple(sorted(finder.found, key=lambda entity: (entity.start, entity.end)))


def is_file(entity: Entity) -> bool:
    """Whether a path looks like that of a file rather than a folder."""
    name = entity.text.rstrip("/").rsplit("/", 1)[-1]
    if entity.text.endswith("/") or entity.weak:
        return False
    return "." in name.strip(".") or name[:1] == "." or name.isupper() or name[:1].isupper()


class _Finder:
    """Collects entities; what one of them covers is blank for those that come later."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = text
        self.found: list[Entity] = []
        self._searching = _SEARCHING.search(text) is not None

    def add(self, entity: Entity) -> None:
        self.found.append(entity)
        self.rest = self.rest[: entity.start] + " " * (entity.end - entity.start) + self.rest[entity.end :]

    def lead(self, start: int) -> str:
        words = re.findall(r"[\w']+", self.text[max(0, start - 24) : start])
        return str(words[-1]).lower() if words else ""

    def find_quoted(self) -> None:
        for match in _QUOTED.finditer(self.text):
            value = next(group for group in match.groups() if group is not None)
            lead = self.lead(match.start())
            sought = self._searching and lead in _TEXT_LEADS
            kind: Kind = "quoted" if sought else _kind_of_token(value) or "quoted"
            if kind == "path" and (value.count(" ") > 3 or "\n" in value):
                kind = "quoted"
            self.add(Entity(kind, value, match.start(), match.end(), lead=lead))

    def find_simple(self) -> None:
        kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (("url", _URL), ("email", _EMAIL), ("date", _DATE))
        for kind, pattern in kinds:
            for match in pattern.finditer(self.rest):
                value = match[0].rstrip(".,;:!?)]}")
                self.add(Entity(kind, value, match.start(), match.start() + len(value)))
        for match in _SPAN.finditer(self.rest):
            first, last = int(match[2]), int(match[3]) if match[3] else None
            if last is None and not match[1]:
                last = first
            numbers = (first,) if last is None else (first, last)
            self.add(Entity("span", match[0], match.start(), match.end(), numbers=numbers, unit="lin"))

    def find_tokens(self) -> None:
        for match in _TOKEN.finditer(self.rest):
            token = match[0]
            offset = len(token) - len(token.lstrip("(<[,;:\"'"))
            token = token.strip("()<>,;:!?\"'").removesuffix("'s").removesuffix("’s").rstrip(".,?!:")
            token = token.removesuffix("]") if "[" not in token else token
            kind = _kind_of_token(token)
            if kind is None:
                continue
            start = match.start() + offset
            lead = self.lead(start)
            if kind == "path" and self._searching and lead in _TEXT_LEADS:
                kind = "quoted"  # "search for os.path": the text to find, not the place to look
            if (
                kind == "path"
                and token.startswith(".")
                and re.match(rf"\s+{_FILE_NOUN}\b", self.text[start + len(token) :])
            ):
                continue  # ".md files" is a kind of files
            self.add(Entity(kind, token, start, start + len(token), lead=lead))

    def find_types(self) -> None:
        for match in _TYPE.finditer(self.rest):
            if match[2] and (
                len(match[2]) < 4 or match[2].lower() in ("text", "java", "rust", "lock", "stub", "shell")
            ):
                continue  # a bare "go" or "text" at the end is more likely just a word
            if match[2] and self._searching:
                continue
            globs: dict[str, None] = {}
            for word in _EACH_TYPE.findall(match[1] or match[2]):
                known = _TYPES.get(word.lower()) or (f"*{word}" if word.startswith(".") else f"*.{word}",)
                globs.update(dict.fromkeys(known))
            self.add(Entity("type", match[0].strip(), match.start(), match.end(), values=tuple(globs)))

    def find_numbers(self) -> None:
        for match in _EXPRESSION.finditer(self.rest):
            value = match[0].strip()
            numbers = tuple(_number(part) for part in re.findall(_NUMBER, value))
            verbs = tuple(dict.fromkeys(_OPERATOR_VERBS[sign] for sign in value[1:] if sign in _OPERATOR_VERBS))
            self.add(Entity("expression", value, match.start(), match.end(), values=verbs, numbers=numbers))
        for match in _PLAIN_NUMBER.finditer(self.rest):
            self._add_number(match, _number(match[0]), weak=False)
        for match in _NUMBER_WORD.finditer(self.rest):
            self._add_number(match, _NUMBER_WORDS[match[0].lower()], weak=True)

    def _add_number(self, match: re.Match[str], number: int | float, *, weak: bool) -> None:
        following = re.match(r"\s+([A-Za-z]{1,30})", self.text[match.end() : match.end() + 40])
        unit = stem(following[1].lower()) if following else ""
        unit = "" if unit in ("and", "or", "in", "of", "to", "with", "from", "plus", "minus", "time", "by") else unit
        self.add(
            Entity(
                "number", match[0], match.start(), match.end(),
                numbers=(number,), unit=unit, lead=self.lead(match.start()), weak=weak,
            )
        )  # fmt: skip

    def find_places(self) -> None:
        for folder in _FOLDER.finditer(self.rest):
            group = 1 if folder[1] else 2
            self._add_place(folder[group], folder.start(group), weak=False)
        for first in _PLACE.finditer(self.rest):
            match: re.Match[str] | None = first
            while match and self._add_place(match[1], match.start(1), weak=True):
                match = _NEXT_PLACE.match(self.rest, match.end(1))

    def _add_place(self, name: str, start: int, *, weak: bool) -> bool:
        name = name.rstrip(".")
        if not name or name.lower() in _NO_PLACES or name.lower() in ("in", "is", "of", "and", "current"):
            return False
        self.add(Entity("path", name, start, start + len(name), lead=self.lead(start), weak=weak))
        return True

    def find_guesses(self) -> None:
        """The topic of a search, and capitalised names: both only weakly."""
        for match in _NAME.finditer(self.rest):
            self.found.append(Entity("name", match[1], match.start(1), match.end(1), weak=True))
        match_topic = _TOPIC.search(self.rest)
        if match_topic is None:
            return
        group = next(index for index, value in enumerate(match_topic.groups(), 1) if value is not None)
        raw = match_topic[group]
        end = _TOPIC_END.search(raw)
        raw = raw[: end.start()] if end else raw
        raw = raw.split("   ", 1)[0].rstrip(" .?!,")
        topic = _TOPIC_LEAD.sub("", raw.lstrip()).strip()
        if not topic or all(word in _NO_TOPICS for word in topic.lower().split()) or _ASKS.search(topic):
            return
        start = match_topic.start(group) + match_topic[group].find(topic)
        several = re.split(r"\s+(?:and|or)\s+|,\s*", topic)
        lead = "about" if group == 1 and match_topic[0].lower().startswith("about") else "for" if group == 5 else "find"
        for part in several if all(" " not in part for part in several) else [topic]:
            begin = start + topic.find(part)
            self.found.append(Entity("topic", part, begin, begin + len(part), lead=lead, weak=True))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _kind_of_token(token: str) -> Kind | None:
    """Whether a word is a path or a glob; None for neither."""
    if len(token) < 2 or token.lower() in _NOT_PATHS or not any(map(str.isalpha, token.replace("*", "a"))):
        return None
    if "(" in token or "=" in token or "://" in token or token.isdigit():
        return None
    if "*" in token:
        return None if re.fullmatch(r"[\d.*+/()x-]+", token) else "glob"
    if "{" in token and "," in token and "}" in token and "." in token:
        return "glob"
    if "/" in token.strip("/") or token.endswith("/") or "\\" in token:
        return None if re.fullmatch(r"[\d./,-]+", token) or " " in token.split("/")[0] else "path"
    if token in _BARE_FILES or _EXTENSION.fullmatch(token):
        return "path"
    if " " in token and re.fullmatch(r"[^\n:;,?!\"]{1,80}\.[A-Za-z][A-Za-z0-9]{0,5}", token):
        return "path"
    return None
