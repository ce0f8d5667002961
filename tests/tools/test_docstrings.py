from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilane.tools import as_tool
from trilane.tools.docstrings import parse_docstring

GOOGLE = """Find things.

    More about it,
    in two lines.

    Args:
        place (dict[str, int], optional): Where to look,
            with a colon: here.

            And a second paragraph:
            - one
            - two
        count: How many.
        *items: The items.
        **opts: The options.

    Returns:
        str: what was found
    """
NUMPY = """Find things.

    More about it,
    in two lines.

    Parameters
    ----------
    place : dict[str, int], optional
        Where to look,
        with a colon: here.

        And a second paragraph:
        - one
        - two
    count : int
        How many.
    *items : str
        The items.
    **opts
        The options.

    Returns
    -------
    str
        what was found
    """
SPHINX = """Find things.

    More about it,
    in two lines.

    :param place: Where to look,
        with a colon: here.

        And a second paragraph:
        - one
        - two
    :type place: dict[str, int], optional
    :param int count: How many.
    :param \\\\*items: The items.
    :param \\\\*\\\\*opts: The options.
    :returns: what was found
    :rtype: str
    """
EXPECTED = {
    "place": "Where to look, with a colon: here.\n\nAnd a second paragraph:\n- one\n- two",
    "count": "How many.",
    "items": "The items.",
    "opts": "The options.",
}
STYLES = pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])


@STYLES
def test_f062_three_styles_say_the_same(text: str) -> None:
    found = parse_docstring(text)
    assert found.description == "Find things.\n\nMore about it,\nin two lines."
    assert found.parameters == EXPECTED


@STYLES
def test_f062_descriptions_reach_the_schema(text: str) -> None:
    def find(place: str, *items: str, count: int = 1, **opts: int) -> str:
        return place

    find.__doc__ = text
    tool = as_tool(find)
    assert tool.description == "Find things.\n\nMore about it,\nin two lines."
    properties: Any = tool.parameters["properties"]
    assert {name: item["description"] for name, item in properties.items()} == {
        "place": EXPECTED["place"],
        "count": "How many.",
    }
    assert tool.parameters["additionalProperties"] == {"type": "integer", "description": "The options."}


@STYLES
@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_f063_windows_line_ends_change_nothing(text: str, newline: str) -> None:
    assert parse_docstring(text.replace("\n", newline)) == parse_docstring(text)


@STYLES
def test_f063_tabs_change_nothing(text: str) -> None:
    tabbed = textwrap.dedent("    " + text).replace("    ", "\t")
    assert parse_docstring(tabbed).parameters == EXPECTED


def test_f063_keyword_only_extra_and_foreign_names() -> None:
    def search(query: str, *, größe: int = 1) -> None:
        """Suche – 検索.

        Args:
            query: Wonach gesucht wird – 検索語.
            gone: Not in the signature any more.

        Keyword Args:
            größe: Wie viele Treffer.
        """

    properties: Any = as_tool(search).parameters["properties"]
    assert {name: item["description"] for name, item in properties.items()} == {
        "query": "Wonach gesucht wird – 検索語.",
        "größe": "Wie viele Treffer.",
    }
    assert as_tool(search).description == "Suche – 検索."


def test_f063_one_entry_may_name_several_parameters() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    A number.\n"
    assert parse_docstring(text).parameters == {"a": "A number.", "b": "A number."}


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_f062_no_docstring(text: str | None) -> None:
    assert parse_docstring(text) == ("", {})


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        ("Do.\n\nArgs:\nbroken\n  x\n", "Do.\n\nArgs:\nbroken\n  x", {}),
        ("Do.\n\n:param\n:param:\n:::\n:param x", "Do.\n\n:param\n:::\n:param x", {}),
        ("Do.\n\n:param a: fine\n:param b no colon\n", "Do.\n\n:param b no colon", {"a": "fine"}),
        ("Do.\n\nArgs:\n  a (int: unclosed\n  b: fine\n", "Do.", {"b": "fine"}),
        ("Args:\n    a: x", "", {"a": "x"}),
        ("Do.\n\nParameters\n----------", "Do.", {}),
        ("Example::\n\n    run()\n\nNote:\n    careful", "Example::\n\n    run()\n\nNote:\n    careful", {}),
    ],
)
def test_f062_broken_docstrings_keep_what_can_be_read(text: str, description: str, parameters: dict[str, str]) -> None:
    assert parse_docstring(text) == (description, parameters)


@given(
    st.lists(
        st.sampled_from(
            [
                "Args:",
                "    a: b",
                "Parameters",
                "----------",
                ":param x: y",
                ":param",
                "",
                "   ",
                "\t*a:",
                "Returns:",
                ":::",
            ]
        )
        | st.text(max_size=12)
    )
)
def test_f062_no_docstring_stops_registration(lines: list[str]) -> None:
    def act(a: int, x: int = 1) -> None: ...

    act.__doc__ = "\n".join(lines)
    assert set(as_tool(act).parameters["properties"]) == {"a", "x"}  # type: ignore[arg-type]
