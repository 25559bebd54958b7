"""Rules about the code itself: imports point down, each equation has one home, no flags below."""

import ast
import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Top to bottom. A module imports from lower rows and from its own package, never from above.
LAYERS = [
    {"benchmarks"},
    {"experiments"},
    {"roid_jax.api"},
    {"roid_jax.training", "roid_jax.evaluation", "roid_jax.rollout", "roid_jax.seeds"},
    {"roid_jax.diagnosis"},
    {"roid_jax.agents", "roid_jax.linear"},
    {"roid_jax.envs"},
    {"roid_jax.data"},
    {"roid_jax.selection", "roid_jax.episodes", "roid_jax.transformer"},
    {"roid_jax.networks", "roid_jax.losses", "roid_jax.replay"},
    {"roid_jax.checkpoint"},
    {"roid_jax.on_disk"},
    {"roid_jax.results"},
    {"roid_jax.report"},
    {
        "roid_jax.config",
        "roid_jax.directories",
        "roid_jax.compiler",
    },
    {"roid_jax.types", "roid_jax.memory", "roid_jax.key_data", "roid_jax.packing"},
]
SOURCES = sorted(
    path
    for folder in ("roid_jax", "experiments", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module):
    """The entry of LAYERS that a module belongs to, and its row."""
    for row, layer in enumerate(LAYERS):
        for name in layer:
            if module == name or module.startswith(f"{name}."):
                return name, row
    return None, None


def imports(path):
    """Every one of our modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    known = {module_name(source) for source in SOURCES}
    return {name for name in found if name in known}


GRAPH = {module_name(path): imports(path) for path in SOURCES}


def test_every_module_has_a_room():
    homeless = [module for module in GRAPH if room(module)[0] is None and module != "roid_jax"]
    assert homeless == []


@pytest.mark.parametrize("module", sorted(GRAPH))
def test_imports_point_down(module):
    name, row = room(module)
    for other in GRAPH[module]:
        other_name, other_row = room(other)
        if other == "roid_jax" or other_name == name:
            continue
        assert other_row > row, f"{module} imports {other}, which is above or beside it"


def test_imports_never_go_in_circles():
    state = {}

    def visit(module, trail):
        assert state.get(module) != "open", f"circle: {' -> '.join([*trail, module])}"
        if module in state:
            return
        state[module] = "open"
        for other in GRAPH[module]:
            if other != "roid_jax" and other != module and not module.startswith(f"{other}."):
                visit(other, [*trail, module])
        state[module] = "closed"

    for module in GRAPH:
        visit(module, [])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_tells_its_story_in_250_lines_and_a_function_in_40(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = node.end_lineno - body[0].lineno + 1 if body else 0
            assert length <= 40, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", sorted((ROOT / "roid_jax").rglob("*.py")), ids=str)
def test_no_flags_are_read_below_the_binaries(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("absl")
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("absl") for alias in node.names)


def docstrings():
    for path in (ROOT / "roid_jax").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                yield f"{module_name(path)}.{node.name}", ast.get_docstring(node)


# The numbered statements of the paper's Sections 3 to 5, and where each lives.
STATEMENTS = {
    "Eq. (1)": "roid_jax.linear.theory.value_difference_bound",
    "Eq. (2)": "roid_jax.linear.theory.residual_information",
    "Assumption 1": "roid_jax.linear.theory.ratio_certificate",
    "Lemma 2": "roid_jax.linear.theory.ratio_certificate",
    "Proposition 3": "roid_jax.linear.theory.master_bound",
    "Lemma 4": "roid_jax.linear.posterior.information_gain",
    "Lemma 5": "roid_jax.linear.theory.reference_ratio_constant",
    "Definition 6": "roid_jax.linear.theory.coverage",
    "Theorem 7": "roid_jax.linear.theory.two_branch_bound",
    "Theorem 8": "roid_jax.linear.separation.separation",
}


def test_each_numbered_statement_is_restated_in_exactly_one_function():
    homes = collections.defaultdict(list)
    numbered = r"Paper, (Eq\. \(\d+\)|[A-Z][a-z]+ \d+)"
    for name, text in docstrings():
        for statement in set(re.findall(numbered, text)):
            if not statement.startswith("Section"):
                homes[statement].append(name)
    for statement, home in STATEMENTS.items():
        assert homes[statement] == [home]
    twice = {statement: names for statement, names in homes.items() if len(names) > 1}
    assert twice == {}


def test_the_index_of_statements_in_the_docs_is_the_one_in_the_code():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    for statement, home in STATEMENTS.items():
        module, _, function = home.removeprefix("roid_jax.").rpartition(".")
        assert re.search(rf"\| {re.escape(statement)} .*`{re.escape(module)}\.{function}`", text)


def test_the_ratio_is_written_once():
    """Nobody but ids_score divides a squared regret by information plus eta.

    (Benchmarks do it once more in NumPy and PyTorch: that is what they compare with.)
    """
    pattern = re.compile(r"(square\(regret|regret\s*\*\*\s*2|delta\s*\*\*\s*2)")
    product = [path for path in SOURCES if path.parent.name != "benchmarks"]
    writers = [path.name for path in product if pattern.search(path.read_text(encoding="utf-8"))]
    assert writers == ["selection.py"]
