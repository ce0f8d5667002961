"""Options that several commands share."""

from __future__ import annotations

from .console import UsageError

__all__ = ["blocked_names"]


def blocked_names(options: tuple[str, ...]) -> tuple[str, ...]:
    """The plugins named in `-p no:NAME` options.

    Raises:
        UsageError: an option of another form.
    """
    names = []
    for option in options:
        name = option.removeprefix("no:")
        if name == option or not name:
            raise UsageError(
                f"-p {option}: write -p no:NAME to leave out a plugin; installed plugins are used without being named"
            )
        names.append(name)
    return tuple(names)
