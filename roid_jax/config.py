"""Configurations: frozen dataclasses that check themselves when they are built.

A configuration is a tree of frozen dataclasses. `flatten` names every field by its dotted path,
`override` returns a copy with some of them replaced (and checked again), and `to_dict` gives the
resolved tree as plain data. The binaries turn the paths into flags.
"""

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Config = TypeVar("Config")


def check(is_right: bool, field: str, expected: str, given: Any) -> None:
    """Raises a one-line error unless `is_right`; for use in `__post_init__`."""
    if not is_right:
        raise ValueError(f"{field} must be {expected}, got {given!r}.")


def check_one_of(field: str, given: Any, choices: Iterable[Any]) -> None:
    """Raises a one-line error unless `given` is one of `choices`."""
    choices = list(choices)
    check(given in choices, field, f"one of {', '.join(map(str, choices))}", given)


def check_positive(config: Any, *fields: str) -> None:
    """Raises a one-line error unless each named field of `config` is above zero."""
    for field in fields:
        given = getattr(config, field)
        check(given > 0, field, "positive", given)


def check_rows(field: str, rows: tuple[int, ...], *, least: int = 0) -> None:
    """Raises a one-line error unless `rows` is a non-empty tuple of whole numbers >= least."""
    is_tuple = isinstance(rows, tuple) and len(rows) > 0
    is_right = is_tuple and all(isinstance(n, int) and n >= least for n in rows)
    check(is_right, field, f"one or more whole numbers from {least} up", rows)


def check_etas(field: str, etas: tuple[float, ...]) -> None:
    """Raises a one-line error unless `etas` is a non-empty tuple of finite numbers >= 0."""
    is_tuple = isinstance(etas, tuple) and len(etas) > 0
    is_right = is_tuple and all(isinstance(x, int | float) and 0 <= x < math.inf for x in etas)
    check(is_right, field, "one or more finite numbers from 0 up", etas)


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the configuration as nested plain data."""
    return dataclasses.asdict(config)


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
    """Returns a copy of `config` with the fields at the dotted paths replaced and checked."""
    for path, value in changes.items():
        config = _replace(config, path, path.split("."), value)
    return config


def _replace(config: Any, path: str, names: list[str], value: Any) -> Any:
    name, rest = names[0], names[1:]
    known = [field.name for field in dataclasses.fields(config)]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}."
        raise ValueError(f"unknown field {path!r}: no {name!r} there; {hint}")
    if rest:
        inner = getattr(config, name)
        if not dataclasses.is_dataclass(inner):
            raise ValueError(f"unknown field {path!r}: {name!r} has no fields of its own.")
        value = _replace(inner, path, rest, value)
    return dataclasses.replace(config, **{name: value})
