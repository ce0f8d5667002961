"""`trilane schema`: the JSON Schema of what `trilane run --json` prints."""

from __future__ import annotations

__all__ = ["schema_command"]


def schema_command() -> None:
    """Print the JSON Schema of the events that `run --json` prints."""
    import json

    from trilane.events import event_json_schema

    print(json.dumps(event_json_schema(), indent=2, ensure_ascii=False))
