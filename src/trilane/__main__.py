"""Entry point of the `trilane` script and of `python -m trilane`. The commands are in `cli/`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exits with status 2 and the line to type if its extra is not installed."""
    try:
        status = _run()
    except KeyboardInterrupt:  # before a command has begun to take care of it
        print("trilane: interrupted", file=sys.stderr)
        status = 130
    except OSError as error:  # as with `trilane --help > /dev/full`
        print(f"trilane: the output cannot be written: {error}", file=sys.stderr)
        status = 1
        sys.stdout = None  # the interpreter must not try again
    raise SystemExit(status)


def _run() -> int:
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(
            "trilane: the command line needs the package typer, which is not installed. "
            "Install it with: pip install 'trilane[cli]'",
            file=sys.stderr,
        )
        return 2
    from .cli.app import run_app

    return run_app()


if __name__ == "__main__":
    main()
