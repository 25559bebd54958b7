"""What the README shows must run."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_worlds_runs(capsys):
    text = (ROOT / "docs" / "worlds.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "worlds.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(100, 8)")


def test_the_library_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(r"try candidate [0-7]\n", capsys.readouterr().out)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_flag_it_shows_is_of_the_binary_it_is_shown_with(page):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for binary, rest in re.findall(r"python -m ((?:experiments|benchmarks)\.\w+)([^\n`]*)", text):
        module = importlib.import_module(binary)
        source = pathlib.Path(module.__file__).read_text(encoding="utf-8")
        shown = re.findall(r"--(?:no)?([a-z_]+)", rest.split("#")[0])
        for flag in shown:
            is_known = flag in ("help", "config") or f'"{flag}"' in source
            assert is_known, f"{binary} has no --{flag}"


def test_every_file_it_links_to_is_there():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), target
