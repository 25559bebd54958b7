import dataclasses

import pytest

from roid_jax import config as cfg


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    name: str = "a"

    def __post_init__(self):
        cfg.check_number(self, "rate", above=0)
        cfg.check_one_of("name", self.name, ("a", "b"))


@dataclasses.dataclass(frozen=True)
class Outer:
    steps: int = 3
    inner: Inner = dataclasses.field(default=Inner())


def test_every_field_has_a_path():
    assert cfg.flatten(Outer()) == {"steps": 3, "inner.rate": 0.5, "inner.name": "a"}


def test_overriding_replaces_by_path_and_leaves_the_rest():
    changed = cfg.override(Outer(), {"inner.rate": 2.0, "steps": 7})
    assert changed == Outer(steps=7, inner=Inner(rate=2.0))
    assert Outer() == Outer(steps=3, inner=Inner(rate=0.5))


def test_an_override_is_checked():
    with pytest.raises(ValueError, match=r"rate must be a finite number above 0, got -1\.0"):
        cfg.override(Outer(), {"inner.rate": -1.0})


@pytest.mark.parametrize(
    "path, message",
    [
        ("stpes", "unknown field 'stpes': no 'stpes' there; did you mean 'steps'?"),
        ("inner.zzz", "unknown field 'inner.zzz': no 'zzz' there; choose from rate, name."),
        ("steps.more", "unknown field 'steps.more': 'steps' has no fields of its own."),
    ],
)
def test_an_unknown_path_is_named_with_what_would_do(path, message):
    with pytest.raises(ValueError) as error:
        cfg.override(Outer(), {path: 1})
    assert str(error.value) == message


def test_configurations_are_frozen_and_plain():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Outer().steps = 4
    assert cfg.to_dict(Outer()) == {"steps": 3, "inner": {"rate": 0.5, "name": "a"}}


@dataclasses.dataclass(frozen=True)
class Sizes:
    count: object = 1
    rows: object = (1,)
    chance: object = 0.5

    def __post_init__(self):
        cfg.check_whole(self, "count", most=10)
        cfg.check_sizes("rows", self.rows)
        cfg.check_between("chance", self.chance, 0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        *({"count": given} for given in (0, 11, 1.0, True, "1", None, float("nan"))),
        *({"rows": given} for given in ((), 3, [3], (1, 1), (True,), (0.5,), (-1,), "12")),
        *({"chance": given} for given in (0, 1, float("nan"), "0.5", None, True)),
    ],
)
def test_what_is_not_a_fitting_number_is_refused(changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))} must be"):
        Sizes(**changes)


@dataclasses.dataclass(frozen=True)
class Pair:
    low: int = 1
    high: int = 2

    def __post_init__(self):
        cfg.check(self.low < self.high, "low", f"below high, {self.high}", self.low)


@pytest.mark.parametrize("order", [("low", "high"), ("high", "low")])
@pytest.mark.parametrize("values", [{"low": 5, "high": 9}, {"low": -9, "high": -5}])
def test_fields_that_must_fit_each_other_can_be_changed_in_any_order(order, values):
    assert cfg.override(Pair(), {name: values[name] for name in order}) == Pair(**values)
