"""What a reader may count on in every file: rooms of readable size, documented names, no path of one machine."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [path for package in ("ascend_jax", "tiling_search") for path in sorted((ROOT / package).rglob("*.py"))]
IDS = [str(path.relative_to(ROOT)) for path in SOURCES]
MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 60
MACHINE_PATH = re.compile(r"(?<![\w.~})-])/(?:work|root|tmp)/")
"""An absolute path: not the middle of a longer one, of a URL, or of ``{folder}/…``."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(function: Function) -> int:
    """Lines of the body, the docstring left out: explaining well, and a signature that is another's, should cost nothing."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return ((body[-1].end_lineno or 0) - body[0].lineno + 1) if body else 0


def promised_methods(module: ast.Module) -> set[str]:
    """Methods of the module's protocols and abstract classes: documented there, once for all who implement them."""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    contracts = [
        node for node in classes if any(re.match(r"(\w+\.)?(Protocol|ABC)\b", ast.unparse(base)) for base in node.bases)
    ]
    return {method.name for node in contracts for method in node.body if isinstance(method, Function)}


def undocumented(node: ast.Module | ast.ClassDef, promised: set[str], prefix: str = "") -> Iterator[str]:
    """Public functions, classes and methods without a docstring, but for methods that only keep a promise."""
    keeps_promises = isinstance(node, ast.ClassDef) and not promised_methods(ast.Module([node], []))
    for child in node.body:
        if not isinstance(child, Function | ast.ClassDef) or child.name.startswith("_"):
            continue
        if ast.get_docstring(child) is None and not (keeps_promises and child.name in promised):
            yield f"{prefix}{child.name} (line {child.lineno})"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, promised, f"{prefix}{child.name}.")


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_files_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text("utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]
    long = [f"{node.name}: {code_lines(node)} lines" for node in functions if code_lines(node) > MOST_FUNCTION_LINES]
    assert not long
    assert len(text.splitlines()) <= MOST_FILE_LINES


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_public_names_are_documented(path: Path) -> None:
    promised = set().union(*(promised_methods(ast.parse(source.read_text("utf-8"))) for source in SOURCES))
    assert list(undocumented(ast.parse(path.read_text("utf-8")), promised)) == []


def test_the_checkers_can_fail() -> None:
    module = ast.parse(
        'class A:\n    """A."""\n    def f(self): ...\n    def _g(self): ...\ndef h():\n    """H."""\n    return 1'
    )
    assert list(undocumented(module, promised=set())) == ["A.f (line 3)"]
    assert list(undocumented(module, promised={"f"})) == []
    protocol = ast.parse("class P(Protocol[T]):\n    'P.'\n    def f(self): ...")
    assert list(undocumented(protocol, promised_methods(protocol))) == ["P.f (line 3)"]
    assert [code_lines(node) for node in module.body if isinstance(node, Function)] == [1]
    folder = "work"  # spelled in two parts, or this file would be found
    assert MACHINE_PATH.search(f'open("/{folder}/x")') and MACHINE_PATH.search(f"file:///{folder}/x")
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/x")


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in filter(None, listing.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            lines = enumerate(content.decode("utf-8", errors="replace").splitlines(), 1)
            found += [f"{name}:{number}" for number, line in lines if MACHINE_PATH.search(line)]
    assert not found
