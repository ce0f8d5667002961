"""Words: tokens, stems, related words, and the few word classes the planner needs.

English only, and small on purpose: enough to compare a request with the names and descriptions of tools. What a
request *mentions* (paths, numbers, quoted text) is found in `entities.py`.
"""

from __future__ import annotations

import re

__all__ = [
    "CHANGING",
    "NEGATIONS",
    "STOP_WORDS",
    "related",
    "starts_request",
    "stem",
    "stems",
    "tokens",
    "word_set",
]


def word_set(words: str) -> frozenset[str]:
    """The words of a text that has only spaces between them."""
    return frozenset(words.split())


_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W\d_]{1,2}\b)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VOWELS = frozenset("aeiouy")

STOP_WORDS = word_set(
    "a an the is are was were be been am do does did has have had can could would should will shall may might must "
    "i me my you your we us our it its they them their this that these those of in on at to for from with by as "
    "and or but so if then than also too please just only any some all each every both there here what's it's "
    "no yes actually instead wait sorry how what who why whose last "
    "thanks thank hi hello hey ok okay now let let's want need like tell give"
)
"""Words that say nothing about which tool is meant."""

_GROUPS = """
list enumerate show display which find locate ls
read show display print open view cat content contain text look
search find grep look locate mention occur contain match where about say
count many number total tally
info information detail metadata stat status property describe about size big large small byte length long modify exist
info change
size big large small byte length long
modify change update date when time old recent age
time date now clock today
add sum plus total
subtract minus difference
multiply times product
divide quotient
calculate compute evaluate calculator math expression formula
create make write save new
delete remove erase
move rename
copy duplicate
send mail email message post
fetch get download retrieve load
weather temperature forecast rain
translate convert
run execute start launch
file document
folder directory dir
summarise summarize summary
remember store note memo
word
line
"""

_CHANGING = (
    "delete remove erase write create save move rename copy send mail email post run execute exec update set put drop "
    "kill install uninstall upload insert append replace edit patch buy order pay book cancel stop start restart reset "
    "clear close submit publish commit push merge deploy transfer make launch store"
)
_ASKING = (
    "list enumerate show display read print open view cat count tally search find grep look locate tell give get fetch "
    "check describe summarise summarize translate convert calculate compute evaluate add sum subtract multiply divide "
    "which what what's how where when who is are does do can could let"
)
_ASKED_NOUNS = "size length number contents content"
_FILLERS = word_set("also then please finally afterwards next now me you can could would will to and but")
_ARTICLES = word_set("the its their a an")

NEGATIONS = word_set("not never don't dont don’t doesn't without avoid")
"""Words that turn an order into its opposite."""


def tokens(text: str) -> list[str]:
    """The words of `text` in lower case; identifiers fall apart at underscores and humps."""
    return [word.replace("’", "'").lower() for word in _TOKEN.findall(_HUMP.sub(" ", text))]


def stem(word: str) -> str:
    """`word` (in lower case) without its common English endings, so that "counting" and "counts" compare equal."""
    word = word.removesuffix("'s")
    if len(word) <= 3:
        return word
    word = _without_plural(word)
    for ending, least in (("ication", 9), ("ied", 5), ("ing", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= least:
            word = _without_ending(word, ending)
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str, ending: str) -> str:
    base = word[: -len(ending)]
    if ending in ("ied", "ication"):
        return base + "y"
    if not _VOWELS.intersection(base):  # "string", "bring": the ending belongs to the word
        return word
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return base


def stems(text: str) -> list[str]:
    """The stems of the words of `text`, stop words left out, in order and with repetitions."""
    return [stem(word) for word in tokens(text) if word not in STOP_WORDS]


def _relations() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _GROUPS.split("\n"):
        group = {stem(word) for word in line.split()}
        for word in group:
            found.setdefault(word, set()).update(group - {word})
    return {word: frozenset(others) for word, others in found.items()}


_RELATED = _relations()
_NOTHING: frozenset[str] = frozenset()

CHANGING = frozenset(stem(word) for word in _CHANGING.split())
"""Stems of verbs that change something outside; a tool named so is called only if the request says so."""

_REQUESTING = word_set(f"{_ASKING} {_CHANGING}")
_NOUNS = word_set(_ASKED_NOUNS)


def related(word: str) -> frozenset[str]:
    """Stems that mean nearly the same as the stem `word`, itself not included."""
    return _RELATED.get(word, _NOTHING)


def starts_request(text: str, extra: frozenset[str] = _NOTHING) -> bool:
    """Whether `text` begins as a request of its own does: with a verb of asking or doing, or a question word.

    Args:
        text: The beginning of a clause; only its first words are looked at.
        extra: Further stems that count as such verbs.
    """
    words = tokens(text[:120])
    while words and words[0] in _FILLERS:
        words = words[1:]
    if not words:
        return False
    if words[0] in _REQUESTING or stem(words[0]) in extra:
        return True
    if words[0] in _ARTICLES and len(words) > 1:
        return words[1] in _NOUNS
    return words[0] in _NOUNS
