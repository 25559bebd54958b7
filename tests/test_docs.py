"""Every block of code in README and docs runs: as it stands, in the order of its page."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "WORKSPACE.md"]
PYTHON = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


# It computes about as much as it compiles: a compiler that tries a little takes the least time.
XLA_FLAGS = (
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)


def blocks(page, *kinds):
    """The code blocks of a page, (kind, text) each."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL)
    return [(kind, body) for kind, body in found if kind in kinds]


def environment(folder):
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": XLA_FLAGS,
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{folder}:{os.environ['PYTHONPATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "100",
    }


def run(words, folder):
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The tutorial, word for word, in an empty folder."""
    folder = tmp_path_factory.mktemp("tutorial")
    said = []
    for kind, body in blocks(ROOT / "docs" / "tutorial.md", "python", "bash"):
        if kind == "bash":
            said.append(run(["bash", "-euo", "pipefail", "-c", body], folder))
            continue
        name = re.match(r"# (\w+\.py)\n", body)
        (folder / (name[1] if name else "last.py")).write_text(body, encoding="utf-8")
        if name is None:
            said.append(run([sys.executable, "last.py"], folder))
    return folder, said


def test_the_tutorial_gets_what_it_promises(followed):
    folder, said = followed
    logged, trained, diagnosed, reported, library = said
    assert "6000 rows" in logged and "6,000" in logged
    assert "mean of last" in trained and (folder / "runs/cart/seed_0/summary.json").is_file()
    assert list((folder / "runs/cart/seed_0/tensorboard").glob("events*"))
    assert "What is left to learn" in diagnosed
    assert (folder / "runs/cart/seed_0/diagnosis.png").is_file()
    assert "greedy" in reported and (folder / "runs/cart-report/index.html").is_file()
    assert re.search(r"returns \[", library)


def test_the_carts_driver_learns_online(followed):
    folder, _ = followed
    import json

    summary = json.loads((folder / "runs/cart/seed_0/summary.json").read_text())
    assert summary["online_best"] > summary["offline_score"] - 5.0


@pytest.mark.parametrize(
    "page", [page for page in PYTHON if page.name != "tutorial.md"], ids=lambda page: page.name
)
def test_every_block_of_python_runs(page, tmp_path):
    for _, body in blocks(page, "python"):
        run([sys.executable, "-c", body], tmp_path)


def test_every_commit_that_a_page_names_is_in_the_history():
    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this is no clone with the whole history")
    for page in [*PAGES, ROOT / "benchmarks" / "README.md"]:
        for name in re.findall(r"`([0-9a-f]{7})`", page.read_text(encoding="utf-8")):
            assert git("merge-base", "--is-ancestor", name, "HEAD").returncode == 0, (page, name)


def test_no_block_is_of_a_kind_that_nobody_runs():
    for page in PAGES:
        kinds = set(re.findall(r"^```(\w+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
        assert kinds <= {"python", "bash", "bibtex", "text"}, page
