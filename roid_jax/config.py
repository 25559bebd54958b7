"""Configurations: frozen dataclasses that check themselves when they are built.

A configuration is a tree of frozen dataclasses. `flatten` names every field by its dotted path,
`override` returns a copy with some of them replaced (and checked again), and `to_dict` gives the
resolved tree as plain data. The binaries turn the paths into flags.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Config = TypeVar("Config")


def check(is_right: bool, field: str, expected: str, given: Any) -> None:
    """Raises a one-line error unless `is_right`; for use in `__post_init__`."""
    if not is_right:
        raise ValueError(f"{field} must be {expected}, got {given!r:.200}.")


def check_one_of(field: str, given: Any, choices: Iterable[Any]) -> None:
    """Raises a one-line error unless `given` is one of `choices`."""
    choices = list(choices)
    check(given in choices, field, f"one of {', '.join(map(str, choices))}", given)


def check_whole(config: Any, *fields: str, least: int = 1, most: int = 1_000_000) -> None:
    """Raises a one-line error unless each named field is a whole number from least to most."""
    for field in fields:
        given = getattr(config, field)
        expected = f"a whole number from {least} to {most}"
        check(_is_whole(given) and least <= given <= most, field, expected, given)


def check_number(
    config: Any, *fields: str, above: float = -math.inf, least: float = -math.inf
) -> None:
    """Raises a one-line error unless each named field is a finite number within the bounds."""
    limits = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (
        least > -math.inf
    )
    for field in fields:
        given = getattr(config, field)
        is_right = _is_finite(given) and given > above and given >= least
        check(is_right, field, " ".join(["a finite number", *limits]), given)


def check_between(field: str, given: Any, low: float, high: float) -> None:
    """Raises a one-line error unless `given` is a number strictly between low and high."""
    is_right = _is_finite(given) and low < given < high
    check(is_right, field, f"a number between {low:g} and {high:g}", given)


def check_share(field: str, given: Any) -> None:
    """Raises a one-line error unless `given` is a number from 0 to 1."""
    check(_is_finite(given) and 0 <= given <= 1, field, "from 0 to 1", given)


def check_sizes(
    field: str, sizes: tuple[int, ...], *, least: int = 0, most: int = 1_000_000
) -> None:
    """Raises a one-line error unless `sizes` are different whole numbers from least to most."""
    is_right = _is_set(sizes) and all(_is_whole(n) and least <= n <= most for n in sizes)
    check(is_right, field, f"different whole numbers from {least} to {most}", sizes)


def check_layers(field: str, sizes: Any) -> None:
    """Raises a one-line error unless `sizes` are one or more whole numbers above 0."""
    is_right = isinstance(sizes, tuple) and sizes and all(_is_whole(n) and n > 0 for n in sizes)
    check(is_right, field, "one or more layer sizes above 0", sizes)


def check_etas(field: str, etas: tuple[float, ...]) -> None:
    """Raises a one-line error unless `etas` are different finite numbers from 0 up."""
    is_right = _is_set(etas) and all(_is_finite(eta) and eta >= 0 for eta in etas)
    check(is_right, field, "different finite numbers from 0 up", etas)


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _is_finite(given: Any) -> bool:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return is_number and abs(given) <= sys.float_info.max  # of a whole number beyond it too


def _is_set(given: Any) -> bool:
    is_tuple = isinstance(given, tuple) and all(isinstance(one, int | float) for one in given)
    return is_tuple and 0 < len(given) == len(set(given))


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the configuration as nested plain data."""
    return dataclasses.asdict(config)


def from_dict(like: Config, given: Mapping[str, Any]) -> Config:
    """Returns a configuration of the same kind with the values that `to_dict` gave.

    Lists become tuples, as a file has them; a field that is not there is refused.
    """
    changes = {}
    for path, default in flatten(like).items():
        value: Any = given
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                raise ValueError(f"the configuration has no field {path!r}.")
            value = value[name]
        value = tuple(value) if isinstance(value, list) else value
        check(not isinstance(value, Mapping), path, "without fields of its own", value)
        if isinstance(default, bool | str | tuple):  # numbers are checked by what they are for
            expected = f"a {type(default).__name__}"
            check(type(value) is type(default), path, expected, value)
        changes[path] = value
    return override(like, changes)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns every leaf field by its dotted path, as in `biased_linear.horizon`."""
    leaves = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        path = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            leaves |= flatten(value, f"{path}.")
        else:
            leaves[path] = value
    return leaves


def override(config: Config, changes: Mapping[str, Any]) -> Config:
    """Returns a copy of `config` with the fields at the dotted paths replaced.

    It is checked once all are in place, so that fields which must fit each other can be changed
    together, in any order.
    """
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        _require_field(config, path)
        *branches, name = path.split(".")
        branch = tree
        for part in branches:
            branch = branch.setdefault(part, {})
        branch[name] = value
    return _rebuild(config, tree)


def _rebuild(config: Any, tree: Mapping[str, Any]) -> Any:
    """Returns the configuration with new values in the places of a nested dict."""
    values = {
        name: _rebuild(getattr(config, name), value) if isinstance(value, dict) else value
        for name, value in tree.items()
    }
    return dataclasses.replace(config, **values)


def _require_field(config: Any, path: str) -> None:
    """Raises a one-line error unless there is a field at the dotted path."""
    above = ""
    for name in path.split("."):
        if not dataclasses.is_dataclass(config):
            raise ValueError(f"unknown field {path!r}: {above!r} has no fields of its own.")
        known = [field.name for field in dataclasses.fields(config)]
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}."
            raise ValueError(f"unknown field {path!r}: no {name!r} there; {hint}")
        config, above = getattr(config, name), name
