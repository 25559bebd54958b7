"""What D4RL publishes: its v2 locomotion files, with their sizes and checksums, and where from."""

import os
import re
from typing import NamedTuple

TASKS = ("hopper", "walker2d", "halfcheetah")
LEVELS = ("random", "medium", "medium-replay", "medium-expert", "expert")
MIRRORS = (  # D4RL's own address, a copy on Hugging Face, and the address as D4RL prints it
    "https://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/",
    "https://huggingface.co/datasets/imone/D4RL/resolve/main/",
    "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/",
)


class Entry(NamedTuple):
    """What is known of one published file; bytes and sha256 are None where they are not."""

    name: str
    file: str
    bytes: int | None
    sha256: str | None


_KNOWN = {  # bytes and sha256, as TensorFlow Datasets records them for D4RL's server
    "hopper-medium-v2": (
        152756557,
        "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0",
    ),
    "hopper-medium-replay-v2": (
        75854457,
        "e121c5f7c9857a307baa9edc6a2c3b48e85fedb9ac316ecddd0f48ca7ef4e39b",
    ),
    "walker2d-medium-v2": (
        232254996,
        "cf00f43add04c17fdfc2958dd581dea0851b2e5bedbe6fda073758a8f841aeda",
    ),
    "walker2d-medium-replay-v2": (
        86323963,
        "e75de96a4f77acf7d4e0d6fdf0d7ccb177c26c44bb4388e4fd99f543ccfa18db",
    ),
    "halfcheetah-medium-v2": (
        237727262,
        "41324e8487a9556d8cfa4538827f8937f4d63dae3030825ebc9f3a726ed08ca0",
    ),
    "halfcheetah-medium-replay-v2": (
        59448533,
        "48d494a4770c11f48260736dec090b78bdca8375647ed4d24bfa5b6610c7f683",
    ),
    "hopper-random-v2": (
        152525345,
        "63103ef7059db4c0819bd054f4e83ff339030b50bcdb46bdbe50385f234b5054",
    ),
    "hopper-medium-expert-v2": (
        304537315,
        "9d51ad87f8c905be3880d84c6140bcdb7fbf39a19e046a237f238ba34fec9e26",
    ),
    "hopper-expert-v2": (
        152427435,
        "01aa219a5f8eea5e639eccdc636ec2bf40e317159a95cf4bf6e985f16909941b",
    ),
    "walker2d-random-v2": (
        216109364,
        "4e863bb6090cf4a461548bd470564b32f1ae5b32ef3085f816b2ede7f092e7fa",
    ),
    "walker2d-medium-expert-v2": (
        462197079,
        "6b8d7f868c45bbaedf460be797fb7271b46dee6ebe45fe7a64319f2005b59a04",
    ),
    "walker2d-expert-v2": (
        230567195,
        "2985dc3d436a8baa10e8f43f946fe1d7c6337a4e4fbc65def70618093b18c59a",
    ),
    "halfcheetah-random-v2": (
        237338037,
        "25407aef85b5d16c0f36b4149341edb4acc6a9e88c1db529b2de19e7464874ba",
    ),
    "halfcheetah-medium-expert-v2": (
        474567252,
        "015db75dae5bbe8e94029b71fa0bafc2073365df0c94744e71031189f3f79c06",
    ),
    "halfcheetah-expert-v2": (
        237464597,
        "d9fe53bb994eb1e20a99b4fa3412cd76a1bb7966a7ff55e0fcbdd6081bd2965f",
    ),
}


def entries() -> list[Entry]:
    """Returns every D4RL v2 locomotion set, in D4RL's own naming."""
    found = []
    for task in TASKS:
        for level in LEVELS:
            name = f"{task}-{level}-v2"
            file = f"{task}_{level.replace('-', '_')}-v2.hdf5"
            found.append(Entry(name, file, *_KNOWN.get(name, (None, None))))
    return found


def find(name: str) -> Entry:
    """Returns the published file of that name, as in hopper-medium-v2."""
    known = {entry.name: entry for entry in entries()}
    if name not in known:
        raise ValueError(f"unknown D4RL set {name!r}; choose from {', '.join(known)}.")
    return known[name]


def mirrors() -> list[str]:
    """Returns the addresses to fetch D4RL's files from, in order; the user's own come first."""
    words = [word.strip() for word in os.environ.get("ROID_JAX_MIRRORS", "").split(",")]
    chosen = [f"{word.rstrip('/')}/" for word in words if word]
    for address in chosen:
        if not re.fullmatch(r"https?://[\w.:\[\]-]+/[!-~]*", address, flags=re.ASCII):
            raise ValueError(
                f"ROID_JAX_MIRRORS has {address!r}; a mirror is http://<host>/<folder>/ or https."
            )
    return [*chosen, *MIRRORS]
