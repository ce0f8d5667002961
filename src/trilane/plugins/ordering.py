"""In which order the implementations of a hook are called, and why.

The base is pluggy's: `tryfirst`, then the others, then `trylast`, in each group the last registered first. `before`
and `after` then move as little as possible. Hooks that the catalogue reverses run the finished order backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from trilane.errors import HookSpecError
from trilane.hookspecs import HOOKS

from .implementations import location, marks_of

if TYPE_CHECKING:
    from pluggy import HookImpl

__all__ = ["arrange", "reasons"]


def arrange(hook: str, impls: Sequence[HookImpl], known: Callable[[], Collection[str]]) -> list[HookImpl]:
    """`impls`, which are in pluggy's calling order, with `before` and `after` applied, and reversed where the hook is.

    Args:
        hook: Name of the hook.
        impls: Its implementations.
        known: Names that `before` and `after` may use although the plugin does not implement this hook; called only if
            there is such a name.

    Raises:
        HookSpecError: a name nobody has, or plugins that want to be before each other.
    """
    earlier = _edges(hook, impls, known)
    ordered = _sorted(hook, impls, earlier) if any(earlier) else list(impls)
    return ordered[::-1] if HOOKS[hook].reverse else ordered


def reasons(hook: str, impls: Sequence[HookImpl]) -> list[tuple[str, str]]:
    """For each of the arranged `impls` its plugin's name and why it stands where it stands."""
    backwards = HOOKS[hook].reverse
    found = []
    for impl in impls:
        marks = marks_of(impl)
        why = ["tryfirst" if impl.tryfirst else "trylast" if impl.trylast else "order of registration, last first"]
        if marks.before:
            why.append(f"before {', '.join(marks.before)}")
        if marks.after:
            why.append(f"after {', '.join(marks.after)}")
        if backwards:
            why.append("reversed on the way out")
        found.append((impl.plugin_name, "; ".join(why)))
    return found


def _edges(hook: str, impls: Sequence[HookImpl], known: Callable[[], Collection[str]]) -> list[set[int]]:
    """For each implementation the positions of those that must come earlier."""
    places: dict[str, list[int]] = {}
    for place, impl in enumerate(impls):
        places.setdefault(impl.plugin_name, []).append(place)
    earlier: list[set[int]] = [set() for _ in impls]
    for place, impl in enumerate(impls):
        marks = marks_of(impl)
        for name in marks.before:
            for other in _places(hook, impl, name, places, known):
                earlier[other].add(place)
        for name in marks.after:
            earlier[place].update(_places(hook, impl, name, places, known))
    return earlier


def _places(
    hook: str, impl: HookImpl, name: str, places: dict[str, list[int]], known: Callable[[], Collection[str]]
) -> list[int]:
    optional = name.endswith("?")
    name = name.removesuffix("?")
    if name == impl.plugin_name:
        raise _error(hook, impl, "asks to be before or after itself; remove that name")
    if name in places:
        return places[name]
    if not optional:
        names = known()
        if name not in names:
            from .checks import and_more, nearest

            hint = and_more(nearest(name, names), f"write {name + '?'!r} if it may be missing")
            raise _error(
                hook,
                impl,
                f"names the plugin {name!r} in before= or after=, which is neither registered nor installed{hint}",
            )
    return []


def _sorted(hook: str, impls: Sequence[HookImpl], earlier: list[set[int]]) -> list[HookImpl]:
    """Topological sort that always takes the first in pluggy's order whose predecessors are all placed."""
    left = list(range(len(impls)))
    placed: set[int] = set()
    ordered: list[HookImpl] = []
    while left:
        place = next((place for place in left if earlier[place] <= placed), None)
        if place is None:
            raise _cycle(hook, impls, earlier, left)
        left.remove(place)
        placed.add(place)
        ordered.append(impls[place])
    return ordered


def _cycle(hook: str, impls: Sequence[HookImpl], earlier: list[set[int]], left: list[int]) -> HookSpecError:
    # Each one left waits for another one left, so walking back from any of them must come round.
    path = [left[0]]
    while (step := min(earlier[path[-1]].intersection(left))) not in path:
        path.append(step)
    circle = [*path[path.index(step) :], step]
    circle.reverse()
    chain = " before ".join(impls[place].plugin_name for place in circle)
    where = ", ".join(f"{impls[place].plugin_name} at {location(impls[place].function)}" for place in circle[:-1])
    return HookSpecError(
        f"hook {hook!r}: the plugins want to be {chain}; remove a before= or after= from one of them ({where})",
        plugin=impls[circle[0]].plugin_name,
    )


def _error(hook: str, impl: HookImpl, what: str) -> HookSpecError:
    where = location(impl.function)
    return HookSpecError(f"plugin {impl.plugin_name!r}: {hook!r} at {where} {what}", plugin=impl.plugin_name)
