"""The kinds of files that come from outside: a sample of each, what is done to it, its reader."""

import pathlib
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks import fuzz_data, fuzz_hdf5, fuzz_runs
from benchmarks.fuzz_damage import BYTES, FILES, JSON, SPECIAL, Damage, one_file


class Kind(NamedTuple):
    """A kind of file.

    make: writes a sample that is as it should be into a directory.
    read: reads what is there as the product does, and raises a `Wrong` where that is not right.
    damages: what can be done to a sample, beside changes of its bytes.
    place: where in the directory the files are that are damaged.
    """

    make: Callable[[pathlib.Path], None]
    read: Callable[[pathlib.Path], None]
    damages: Mapping[str, Damage]
    place: str = "."

    def damage(self, folder: pathlib.Path, number: int, draw: random.Random) -> str:
        """Damages the sample in a directory, and returns how.

        The first cases are one of every kind of damage; then comes any, half of them of bytes.
        """
        named = [*BYTES, *self.damages]
        often = [name for name in self.damages for _ in range(8 if name in _MANY else 1)]
        chance = draw.choice((draw.choice([*BYTES]), draw.choice(often)))
        name = named[number] if number < len(named) else chance
        if name in self.damages:
            place = folder if name in _WHOLE else folder / self.place
            self.damages[name](place, draw)
            return name
        for _ in range(draw.choice((1, 1, 1, 3))):
            file = one_file(folder / self.place, draw)
            file.write_bytes(BYTES[name](file.read_bytes(), draw))
        return name


_MANY = ("json: strange",)  # damages that are many in one
_COPIES = {"another copy": fuzz_data.other_copy, "a copy of a trillion rows": fuzz_data.large_copy}
_WHOLE = frozenset(_COPIES)  # damages of the directory, not of the place in it
_STATES = {
    "other notes": fuzz_runs.other_notes,
    "another state": fuzz_runs.other_state,
    "a state of a trillion rows": fuzz_runs.large_state,
}

KINDS = {
    "d4rl": Kind(
        fuzz_data.write_d4rl, fuzz_data.read_d4rl, {**fuzz_hdf5.DAMAGES, **FILES, **SPECIAL}
    ),
    "copy": Kind(
        fuzz_data.write_copy, fuzz_data.read_copy, {**FILES, **SPECIAL, **_COPIES}, "copy"
    ),
    "minari": Kind(
        fuzz_data.write_minari,
        fuzz_data.read_minari,
        {**fuzz_hdf5.DAMAGES, **JSON, **FILES, **SPECIAL},
    ),
    "checkpoint": Kind(
        fuzz_runs.write_checkpoint,
        fuzz_runs.read_checkpoint,
        {**JSON, **FILES, **SPECIAL, **_STATES},
    ),
    "results": Kind(fuzz_runs.write_run, fuzz_runs.read_run, {**JSON, **FILES, **SPECIAL}),
    "config": Kind(fuzz_runs.write_config, fuzz_runs.read_config, {**JSON, **FILES, **SPECIAL}),
}
