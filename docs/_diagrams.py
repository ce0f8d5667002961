"""Draws what the code says: the phase machine, the order of the hooks, the three lanes. For `_generate.py`.

The pictures are SVG in the page itself, so that they follow its light and dark colours and scale down to a phone.
Places are chosen here, what is drawn is not: a phase, a transition, a hook or an event that is added appears by itself,
or, if it has no place yet, stops the generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import get_args

import trilane
from trilane import events
from trilane.hookspecs import HOOKS
from trilane.state import HOOKS_BY_PHASE, TRANSITIONS, AgentPhase

__all__ = ["hook_order_diagram", "lanes_diagram", "phase_machine_diagram"]

_BOX_WIDTH, _BOX_HEIGHT = 132, 36
_PLACES = {
    AgentPhase.CREATED: (76, 130),
    AgentPhase.LOADING_CONTEXT: (236, 130),
    AgentPhase.READY: (396, 130),
    AgentPhase.GENERATING: (396, 40),
    AgentPhase.RUNNING_TOOL: (566, 70),
    AgentPhase.COMPACTING: (566, 190),
    AgentPhase.COMPLETED: (396, 220),
}
_STOPPED = (AgentPhase.FAILED, AgentPhase.CANCELLED)


def _figure(title: str, height: int, body: Iterable[str], width: int = 680) -> str:
    lines = "\n".join(body)
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
    return f'<figure class="diagram">\n{head}\n{lines}\n</svg>\n</figure>\n'


def _label(x: float, y: float, text: str, *, kind: str = "", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def _box(x: float, y: float, width: float, height: float, text: str, kind: str = "") -> Iterator[str]:
    place = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"'
    yield f'<rect class="box {kind}" {place} rx="6"/>'
    yield _label(x, y + 4, text)


def _arrow(x1: float, y1: float, x2: float, y2: float, *, both: bool = False, kind: str = "") -> Iterator[str]:
    """A line with a head at its end; with `both`, at its beginning too."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
    yield f'<line class="edge {kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
    for x, y, way in ((x2, y2, -1), (x1, y1, 1))[: 2 if both else 1]:
        back = (x + way * 9 * along[0], y + way * 9 * along[1])
        corners = ((x, y), *((back[0] + side * 4 * across[0], back[1] + side * 4 * across[1]) for side in (1, -1)))
        yield f'<polygon class="head" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}"/>'


def _border(start: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box to another leaves the box."""
    dx, dy = towards[0] - start[0], towards[1] - start[1]
    reach = min((_BOX_WIDTH / 2 + 3) / abs(dx) if dx else 9e9, (_BOX_HEIGHT / 2 + 3) / abs(dy) if dy else 9e9)
    return start[0] + dx * reach, start[1] + dy * reach


def phase_machine_diagram() -> str:
    """Every phase and every transition; the two ways to be stopped once for all that have them."""
    body: list[str] = []
    drawn = list(_PLACES)
    for phase in drawn:
        for target in drawn:
            back = phase in TRANSITIONS[target]
            if target not in TRANSITIONS[phase] or (back and drawn.index(target) < drawn.index(phase)):
                continue
            start, end = _PLACES[phase], _PLACES[target]
            body += _arrow(*_border(start, end), *_border(end, start), both=back)
    for phase, (x, y) in _PLACES.items():
        body += _box(x, y, _BOX_WIDTH, _BOX_HEIGHT, phase.name, "end" if phase.is_terminal else "")
    stoppable = [phase for phase in AgentPhase if set(_STOPPED) <= TRANSITIONS[phase]]
    if {*_PLACES, *_STOPPED} != {*AgentPhase} or set(stoppable) != {p for p in AgentPhase if TRANSITIONS[p]} - {
        AgentPhase.CREATED
    }:
        raise ValueError("the phases have changed; give the new ones a place in the diagram")
    body.append(_label(10, 274, f"from {', '.join(phase.name for phase in stoppable)}:", kind="small", anchor="start"))
    body += _arrow(20, 304, 60, 304)
    for number, phase in enumerate(_STOPPED):
        body += _box(130 + number * 180, 304, _BOX_WIDTH, _BOX_HEIGHT, phase.name, "end")
    body.append(_label(220, 308, "or", kind="small"))
    return _figure("The phases of a run and the transitions between them", 330, body)


def hook_order_diagram() -> str:
    """The hooks of each phase, in the order in which a run comes to them, with the loop of its turns."""
    body: list[str] = []
    y = 22
    rows = [phase for phase in AgentPhase if HOOKS_BY_PHASE[phase]]
    turn_top = turn_bottom = 0
    for phase in rows:
        if phase is AgentPhase.READY:
            turn_top = y - 14
        body.append(_label(30, y + 4, phase.name, kind="phase", anchor="start"))
        x = 178.0
        for hook in HOOKS_BY_PHASE[phase]:
            width = 7.1 * len(hook) + 14
            if x + width > 676:
                x, y = 178.0, y + 30
            kind = {"around": "around", "decide": "decide"}.get(HOOKS[hook].mode, "")
            body += _box(x + width / 2, y, width, 24, hook, kind)
            x += width + 10
        if phase is AgentPhase.RUNNING_TOOL:
            turn_bottom = y + 14
        y += 38
    body.append(f'<path class="edge loop" d="M20 {turn_bottom} H10 V{turn_top} H20"/>')
    body += [f'<polygon class="head" points="24,{turn_top} 15,{turn_top - 4} 15,{turn_top + 4}"/>']
    anywhere = [hook.name for hook in HOOKS.values() if len(hook.phases) == len(AgentPhase)]
    body.append(_label(30, y + 4, f"in any phase: {', '.join(anywhere)}", kind="small", anchor="start"))
    body.append(
        _label(
            30,
            y + 24,
            "line at the left: once for each turn; dashed: around a call; bold: decides",
            kind="small",
            anchor="start",
        )
    )
    return _figure("The hooks of a run, phase by phase, in the order in which they are called", y + 36, body)


def lanes_diagram() -> str:
    """The run in the middle, the three lanes around it, and what travels on each."""
    shown = len(get_args(trilane.Event))
    told = [name for name in events.__all__ if _is_notification(name)]
    statuses = re.findall(r"'(\w+)'", trilane.Receipt._record_fields["status"])
    lanes = (
        (40, "UI stream", f"{shown} kinds of events", "the caller", "acknowledged, one at a time", True),
        (
            130,
            "notifications",
            f"{len(told)} kinds, and plugins' own",
            "plugins: on_event",
            "in order, bounded in time",
            True,
        ),
        (
            220,
            "replies",
            "questions out, replies in",
            "whoever answers",
            f"{statuses[0]}, or one of {len(statuses) - 1} reasons why not",
            False,
        ),
    )
    body = [
        '<rect class="box run" x="10" y="10" width="150" height="240" rx="8"/>',
        _label(85, 120, "one run", kind="phase"),
        _label(85, 140, f"{len(AgentPhase)} phases", kind="small"),
        _label(85, 158, f"{len(HOOKS)} hooks", kind="small"),
    ]
    for y, lane, what, whom, how, outward in lanes:
        body += _box(590, y, 170, 44, whom)
        body += _arrow(164, y, 502, y) if outward else _arrow(502, y, 164, y)
        body.append(_label(333, y - 8, f"{lane}: {what}"))
        body.append(_label(333, y + 18, how, kind="small"))
    return _figure("The three lanes of a run", 260, body)


def _is_notification(name: str) -> bool:
    item = getattr(events, name)
    return isinstance(item, type) and issubclass(item, events.ExtensionEvent) and item is not events.ExtensionEvent
