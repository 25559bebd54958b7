import fnmatch
import json
import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINNED = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", LOCK, flags=re.MULTILINE)
}


def declared():
    """What setup.py asks for, by running it with a stand-in for setuptools.setup."""
    script = (
        "import setuptools, runpy, json, sys\n"
        "setuptools.setup = lambda **kw: print(json.dumps("
        "{'base': kw['install_requires'], **kw['extras_require']}))\n"
        "runpy.run_path('setup.py')\n"
    )

    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def requirements():
    pytest.importorskip("setuptools", reason="setup.py is read with setuptools")
    return declared()


def test_every_locked_package_is_pinned_with_hashes():
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.split("\n", 1)[1])
    pinned = [block for block in blocks if re.match(r"[A-Za-z0-9_.-]+==", block)]
    assert len(pinned) == len(PINNED) > 30
    assert all("--hash=sha256:" in block for block in pinned)


def test_the_lock_satisfies_every_range_of_the_package(requirements):
    for line in requirements["base"] + requirements["dev"] + requirements["mjx"]:
        requirement = Requirement(line)
        assert len(requirement.specifier) == 2, f"{line} needs a lower and an upper bound"
        assert PINNED[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_extras_are_there(requirements):
    assert {"cuda", "mjx", "bench", "dev"} <= set(requirements)
    assert any("jax[cuda12]" in line for line in requirements["cuda"])


def test_the_lock_names_no_index():
    assert "--index-url" not in LOCK.split("#    pip-compile")[0]
    assert not re.search(r"^--(extra-)?index-url|^--find-links", LOCK, flags=re.MULTILINE)


def test_the_embedded_dataset_is_packed_and_small():
    script = (ROOT / "setup.py").read_text(encoding="utf-8")
    pattern = re.search(r'package_data=\{"roid_jax": \["(.+?)"\]\}', script)[1]
    package = ROOT / "roid_jax"
    files = [path for path in (package / "data" / "embedded").rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        assert fnmatch.fnmatch(str(path.relative_to(package)), pattern)
    assert sum(path.stat().st_size for path in files) <= 5_000_000
