"""No path leaves the root, nothing blocks, and every refusal says what is wrong and what to do."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trilane.errors import ToolError
from trilane_files import confine
from trilane_files.confine import Place, Root, shown
from trilane_files.describing import file_info
from trilane_files.listing import list_files
from trilane_files.reading import read_file
from trilane_files.searching import search_text

SECRET = "SECRET beside the root"
Write = Callable[..., Path]


@pytest.fixture(params=["by descriptor", "by path"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to open: descriptor-relative, and the one for systems without it."""
    if request.param == "by path":
        monkeypatch.setattr(confine, "_BY_DESCRIPTOR", False)
    return str(request.param)


def refusal(root: Root, path: str) -> str:
    with pytest.raises(ToolError) as caught:
        read_file(root, path)
    return str(caught.value)


@pytest.mark.usefixtures("either_way")
def test_reads_relative_absolute_and_dotted_paths_inside(root: Root, write: Write, folder: Path) -> None:
    write("docs/a.txt", "hello\n")
    for path in ["docs/a.txt", "./docs//a.txt", "docs/../docs/a.txt", str(folder / "docs/a.txt"), "docs/./a.txt"]:
        assert read_file(root, path) == "hello\n"


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("path", ["../secret.txt", "docs/../../secret.txt", "missing/../../secret.txt", "/etc/passwd"])
def test_paths_out_of_the_root_are_refused(root: Root, write: Write, path: str) -> None:
    write("docs/a.txt")
    text = refusal(root, path)
    assert f"'{path}' is outside the folder these tools may read" in text
    assert "list_files() shows what is there" in text
    assert SECRET not in text


def test_a_folder_whose_name_begins_like_the_root_is_outside(root: Root, folder: Path) -> None:
    twin = folder.with_name("root-twin")
    twin.mkdir()
    (twin / "a.txt").write_text(SECRET)
    assert "outside the folder" in refusal(root, "../root-twin/a.txt")
    assert "outside the folder" in refusal(root, str(twin / "a.txt"))


@pytest.mark.usefixtures("either_way")
def test_links_inside_are_followed_and_links_out_are_refused(root: Root, write: Write, folder: Path) -> None:
    write("docs/a.txt", "hello\n")
    (folder / "inner").symlink_to("docs")
    (folder / "inner.txt").symlink_to(folder / "docs" / "a.txt")
    (folder / "out").symlink_to("../outside")
    (folder / "out.txt").symlink_to("/etc/passwd")
    assert read_file(root, "inner/a.txt") == "hello\n"
    assert read_file(root, "inner.txt") == "hello\n"
    for path in ["out/a.txt", "out.txt", "inner/../out/a.txt"]:
        assert "outside the folder" in refusal(root, path)
    for call in (list_files, search_text):
        with pytest.raises(ToolError, match="outside the folder"):
            call(root, "SECRET", path="out")
    with pytest.raises(ToolError, match="outside the folder"):
        file_info(root, "out")


def test_a_link_is_never_a_way_out_of_a_listing_or_search(root: Root, write: Write, folder: Path) -> None:
    write("a.txt", "nothing here\n")
    (folder / "out").symlink_to("../outside")
    (folder / "out.txt").symlink_to("../secret.txt")
    (folder / "inner.txt").symlink_to("a.txt")
    assert list_files(root).splitlines() == [
        "a.txt",
        "inner.txt",
        "[left out, symbolic links that lead to no file inside the folder these tools may read: 2]",
    ]
    assert search_text(root, "SECRET") == "No line matches 'SECRET' in the 1 file searched."


@pytest.mark.usefixtures("either_way")
def test_link_loops_end(root: Root, write: Write, folder: Path) -> None:
    write("sub/a.txt", "hello\n")
    (folder / "loop").symlink_to("loop")
    (folder / "ping").symlink_to("pong")
    (folder / "pong").symlink_to("ping")
    (folder / "sub" / "up").symlink_to("..")
    assert "leads in a circle" in refusal(root, "loop")
    assert "leads in a circle" in refusal(root, "ping")
    assert "circle" in refusal(root, "loop/a.txt")
    assert read_file(root, "sub/up/sub/up/sub/a.txt") == "hello\n"
    assert list_files(root, "*.txt") == "sub/a.txt"
    assert "leads in a circle" in file_info(root, "loop")


def test_a_link_to_nothing_names_both(root: Root, folder: Path) -> None:
    (folder / "link.txt").symlink_to("gone.txt")
    assert "There is no 'gone.txt', where the symbolic link 'link.txt' leads." in refusal(root, "link.txt")


@pytest.mark.usefixtures("either_way")
def test_a_file_swapped_for_a_link_after_the_check_is_not_opened(root: Root, write: Write, folder: Path) -> None:
    path = write("a.txt", "hello\n")
    place = root.place("a.txt")
    path.unlink()
    path.symlink_to("../secret.txt")
    with pytest.raises(ToolError, match="changed just now"):
        root.open_file(place)


@pytest.mark.usefixtures("either_way")
def test_a_folder_swapped_for_a_link_after_the_check_is_not_entered(root: Root, write: Write, folder: Path) -> None:
    write("sub/a.txt", "hello\n")
    place = root.place("sub/a.txt")
    shutil.rmtree(folder / "sub")
    (folder / "sub").symlink_to("../outside")
    with pytest.raises(ToolError, match="changed just now"):
        root.open_file(place)
    with pytest.raises(ToolError, match="changed just now"):
        root.scan(Place(("sub",)), most=10)


def test_a_file_swapped_between_its_check_and_its_opening_is_not_opened(
    root: Root, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.txt", "hello\n")
    real_open = os.open

    def swap_then_open(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name == "a.txt" and not path.is_symlink():
            path.unlink()
            path.symlink_to("../secret.txt")
        return real_open(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_then_open)
    with pytest.raises(ToolError, match="changed just now"):
        root.open_file(Place(("a.txt",)))


def test_a_file_swapped_for_a_pipe_at_the_last_moment_does_not_block(
    root: Root, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.txt", "hello\n")
    real_open = os.open

    def swap_then_open(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name == "a.txt":
            path.unlink()
            os.mkfifo(path)
        return real_open(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_then_open)
    with pytest.raises(ToolError, match="a pipe, socket or device"):
        root.open_file(Place(("a.txt",)))


@pytest.mark.usefixtures("either_way")
def test_special_files_never_block_and_are_named(root: Root, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    for name in ["pipe", "socket"]:
        assert f"'{name}' is a pipe, socket or device, not a regular file" in refusal(root, name)
        assert "choose another file" in refusal(root, name)
    assert file_info(root, "pipe").startswith("pipe: named pipe, never read")
    assert file_info(root, "socket").startswith("socket: socket, never read")
    assert "[left out, pipes, sockets or devices: 2]" in list_files(root)
    assert search_text(root, "x").endswith("[left out, pipes, sockets or devices: 2]")


def test_devices_are_refused_without_being_opened() -> None:
    assert "'null' is a pipe, socket or device" in refusal(Root("/dev"), "null")
    assert file_info(Root("/dev"), "null").startswith("null: character device, never read")


def test_a_folder_is_not_a_file(root: Root, write: Write) -> None:
    write("docs/a.txt")
    assert refusal(root, "docs") == "'docs' is a folder. list_files(path='docs') shows the files in it."
    assert refusal(root, ".") == refusal(root, "") == "'.' is a folder. list_files(path='.') shows the files in it."


@pytest.mark.usefixtures("either_way")
def test_a_missing_file_comes_with_the_nearest_name(root: Root, write: Write) -> None:
    write("docs/README.md")
    assert refusal(root, "docs/readme.md") == (
        "There is no 'docs/readme.md'. Did you mean 'docs/README.md'? list_files() shows what is there."
    )
    assert refusal(root, "docs/zzz") == "There is no 'docs/zzz'. list_files() shows what is there."
    assert refusal(root, "nowhere/at/all") == "There is no 'nowhere/at/all'. list_files() shows what is there."
    assert "a name on the way is a file" in refusal(root, "docs/README.md/more")


def test_unreadable_files_and_folders_say_so(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.txt", "word\n")
    write("closed/b.txt", "word\n")
    write("private.txt", "word\n")
    real_open = os.open

    def guarded(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        if name in ("private.txt", "closed"):
            raise PermissionError(13, "Permission denied")
        return real_open(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", guarded)
    assert refusal(root, "private.txt") == (
        "'private.txt' cannot be read: permission denied. Go on without it, or ask the user to allow it."
    )
    assert list_files(root, "*.txt").splitlines() == [
        "a.txt",
        "private.txt",
        "[left out, unreadable folders: 1, 'closed']",
    ]
    found = search_text(root, "word").splitlines()
    assert found[0] == "a.txt:1: word"
    assert "[left out, unreadable files: 1, 'private.txt']" in found
    with pytest.raises(ToolError, match="'closed' cannot be read: permission denied"):
        list_files(root, path="closed")
    assert "content unknown" in file_info(root, "private.txt")
    assert "folder ('closed' cannot be read: permission denied." in file_info(root, "closed")


def test_other_system_errors_are_told(root: Root, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.txt")

    def broken(name: str, flags: int, *, dir_fd: int | None = None) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "open", broken)
    assert refusal(root, "a.txt") == "'a.txt' cannot be read: Input/output error. Go on without it."


@pytest.mark.parametrize("path", ["a\0b", "../\0", "half \ud83d", "\udfff"])
def test_impossible_names_are_refused_in_valid_text(root: Root, path: str) -> None:
    text = refusal(root, path)
    assert "characters that no file name can have" in text
    assert text.encode()


def test_endless_names_are_refused_briefly(root: Root) -> None:
    assert refusal(root, "a" * 5000).startswith("A path of 5,000 characters is too long")
    assert "File name too long" in refusal(root, "a" * 300)


def test_names_that_are_not_utf8_are_shown_escaped_and_accepted_back(root: Root, folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9\n.txt")
    (folder / name).write_text("word\n")
    assert list_files(root) == r"caf\xe9\x0a.txt"
    assert read_file(root, r"caf\xe9\x0a.txt") == "word\n"
    assert search_text(root, "word") == r"caf\xe9\x0a.txt:1: word"
    assert file_info(root, name).startswith(r"caf\xe9\x0a.txt: file, 5 bytes")


def test_a_name_with_a_real_backslash_wins_over_its_escape(root: Root, write: Write) -> None:
    write(r"a\x41", "real\n")
    write("aA", "escaped\n")
    assert read_file(root, r"a\x41") == "real\n"


def test_an_escaped_path_cannot_climb(root: Root) -> None:
    assert "outside the folder" in refusal(root, r"\x2e\x2e/secret.txt")
    assert "outside the folder" in refusal(root, r"\x2e\x2e\x2fsecret.txt")
    assert "characters that no file name can have" in refusal(root, r"a\x00b")


def test_ordinary_names_are_shown_as_they_are() -> None:
    assert shown("naïve – ファイル 😀.md") == "naïve – ファイル 😀.md"
    assert shown("a\u2028b\x1b") == r"a\xe2\x80\xa8b\x1b"


_NAMES = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a.txt",
        "sub",
        "out",
        "up",
        "loop",
        "secret.txt",
        "outside",
        "root",
        "/",
        "\\",
        "~",
        "...",
        "\\x2e",
    ]
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(path="loop/../out", absolute=False)
@example(path="sub/loop/../../up/out", absolute=True)
@given(path=st.one_of(st.lists(_NAMES, max_size=8).map("/".join), st.text(max_size=20)), absolute=st.booleans())
def test_no_path_escapes(tmp_path_factory: pytest.TempPathFactory, path: str, absolute: bool) -> None:
    base = _maze(tmp_path_factory)
    root = Root(str(base / "root"))
    asked = f"{base}/root/{path}" if absolute else path
    for call in (read_file, file_info, lambda root, path: list_files(root, path=path, include_ignored=True)):
        try:
            text = call(root, asked)
        except ToolError as error:
            text = str(error)
        assert SECRET not in text
        assert text.encode()
    try:
        place = root.place(asked)
    except ToolError:
        return
    real = os.path.realpath(os.path.join(root.path, *place.parts))
    assert real == root.path or real.startswith(root.path + os.sep)


_MAZES: dict[int, Path] = {}


def _maze(factory: pytest.TempPathFactory) -> Path:
    """A root full of links that lead up, out and in circles; the same for all examples."""
    if os.getpid() not in _MAZES:
        base = factory.mktemp("maze")
        (base / "secret.txt").write_text(SECRET)
        (base / "outside").mkdir()
        (base / "outside" / "a.txt").write_text(SECRET)
        (base / "root" / "sub").mkdir(parents=True)
        for inner in ("root", "root/sub"):
            (base / inner / "a.txt").write_text("inside\n")
            (base / inner / "out").symlink_to(base / "outside")
            (base / inner / "up").symlink_to("..")
            (base / inner / "loop").symlink_to("loop")
            (base / inner / "secret.txt").symlink_to(base / "secret.txt")
        _MAZES[os.getpid()] = base
    return _MAZES[os.getpid()]
