"""The five tools as the model sees them: names, parameters and descriptions. The work is done in the other modules."""

from __future__ import annotations

from functools import lru_cache

from trilane import Tool, tool

from . import counting, describing, listing, reading, searching
from .confine import Root
from .decoding import Encoding

__all__ = ["FileTools", "tools_below"]


@lru_cache(maxsize=16)
def tools_below(folder: str) -> tuple[Tool, ...]:
    """The tools for one root folder. Made once, not for each run: a schema costs more than most calls."""
    tools = FileTools(Root(folder))
    offered = (tools.list_files, tools.read_file, tools.search_text, tools.count_words, tools.file_info)
    return tuple(Tool.from_function(function) for function in offered)


class FileTools:
    """Tools that read files below one folder.

    Args:
        root: The folder.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    @tool(effect="read")
    def list_files(
        self,
        pattern: str = "**/*",
        path: str = ".",
        max_results: int = 200,
        offset: int = 0,
        include_ignored: bool = False,
    ) -> str:
        """List files by name, one path a line, sorted. Folders are not listed themselves.

        Args:
            pattern: Glob. A pattern without a slash matches at any depth: '*.md' is every Markdown file.
                './*.md' is only the top level, 'docs/*.md' one folder, 'src/**/*.py' a tree, '*.{md,rst}' either.
            path: Folder to look in.
            max_results: How many paths to return, at most 1000.
            offset: How many paths to leave out at the start, to get the rest of a long list.
            include_ignored: Also look into hidden and vendor folders (.git, .venv, node_modules, __pycache__, ...).
        """
        return listing.list_files(
            self._root, pattern, path=path, max_results=max_results, offset=offset, include_ignored=include_ignored
        )

    @tool(effect="read")
    def read_file(
        self, path: str, offset: int = 1, limit: int = 500, column: int = 1, encoding: Encoding = "utf-8"
    ) -> str:
        r"""Read a text file. If it is long, a note at the end says how to get the rest. Line ends are given as \n.

        Args:
            path: The file.
            offset: Number of the first line to return; the first line of the file is 1.
            limit: How many lines to return, at most 2000.
            column: Where to begin in the first line, for lines that are too long to return at once.
            encoding: Encoding of the file; change it only if told that the file is not UTF-8.
        """
        return reading.read_file(self._root, path, offset=offset, limit=limit, column=column, encoding=encoding)

    @tool(effect="read")
    def search_text(
        self,
        query: str,
        pattern: str = "**/*",
        path: str = ".",
        regex: bool = False,
        ignore_case: bool = False,
        max_results: int = 100,
        offset: int = 0,
        include_ignored: bool = False,
        encoding: Encoding = "utf-8",
    ) -> str:
        """Find lines of text files; returns path:line: text for each.

        Args:
            query: Text to find, within one line.
            pattern: Which files to search, a glob as for list_files: '*.py' matches at any depth.
            path: Folder or file to search.
            regex: Take the query as a Python regular expression.
            ignore_case: Let upper and lower case match each other.
            max_results: How many lines to return, at most 500.
            offset: How many matching lines to leave out at the start, to get the rest of a long result.
            include_ignored: Also search hidden and vendor folders (.git, .venv, node_modules, __pycache__, ...).
            encoding: Encoding of the files; others are left out and named.
        """
        return searching.search_text(
            self._root,
            query,
            pattern=pattern,
            path=path,
            regex=regex,
            ignore_case=ignore_case,
            max_results=max_results,
            offset=offset,
            include_ignored=include_ignored,
            encoding=encoding,
        )

    @tool(effect="read")
    def count_words(self, path: str, encoding: Encoding = "utf-8") -> int:
        """Count the words of a text file, as wc -w does: a word is a run of characters without white space.

        White space is space, tab, line feed, carriage return, vertical tab, form feed, and the Unicode spaces,
        no-break spaces included. Everything else belongs to words, punctuation too.

        Args:
            path: The file.
            encoding: Encoding of the file; change it only if told that the file is not UTF-8.
        """
        return counting.count_words(self._root, path, encoding=encoding)

    @tool(effect="read")
    def file_info(self, path: str) -> str:
        """Tell what a file or folder is: kind, size in bytes, lines, words, line ends, time of the last change.

        Args:
            path: The file or folder.
        """
        return describing.file_info(self._root, path)
