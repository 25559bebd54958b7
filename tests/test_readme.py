"""What the README shows must run."""

import pathlib
import re

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_example_of_worlds_runs(capsys):
    text = (pathlib.Path(__file__).parent.parent / "docs" / "worlds.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "worlds.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(100, 8)")


def test_the_library_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(r"try candidate [0-7]\n", capsys.readouterr().out)


def test_every_flag_it_shows_is_defined():
    flags = set(re.findall(r"--([a-z_.]+)", README))
    known = {
        "help",
        "task",
        "num_seeds",
        "selector",
        "from_checkpoint",
        "out",
        "problem",
        "preset",
        "profile",
        "seeds",
        "workdir",
        "config.",
        "config.hidden_mode.offline_rows",
    }
    assert flags <= known, flags - known


def test_every_file_it_links_to_is_there():
    root = pathlib.Path(__file__).parent.parent
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (root / target).exists(), target
