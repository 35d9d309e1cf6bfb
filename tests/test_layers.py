"""Imports point only to a lower number, and modules of one number do not import each other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "bayes_attn"
NUMBERS = {
    "errors": -1,
    "order_parameters": 0,
    "attention": 0,
    "tasks": 0,
    "priors": 0,
    "posterior": 1,
    "joint": 1.5,
    "theory": 2,
    "sampling": 2,
    "training": 2,
    "diagnostics": 3,
    "bimodality": 3,
    "free_energy": 4,
    "finite_size": 4,
    "evidence": 5,
    "verdict": 6,
    "planner": 5,
    "regions": 5,
    "workflow": 7,
    "cli": 8,
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def home(path: Path) -> str:
    """The module, or the folder, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "bayes_attn":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayes_attn."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bayes_attn.")}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    here = home(path)
    for name in imported(path) - {here}:
        assert NUMBERS[name] < NUMBERS[here], f"{here} imports {name}"


def test_only_diagnostics_imports_arviz() -> None:
    users = {home(path) for path in FILES if "import arviz" in path.read_text()}
    assert users == {"diagnostics"}


def test_the_rule_has_teeth() -> None:
    assert imported(ROOT / "verdict.py") >= {"evidence", "finite_size"}
