"""The quick part of `make adapters-test`, in each framework's own environment, where there is one already."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.adapters import environments, examples
from tests.adapters.frameworks import FRAMEWORKS, Framework

import belljar

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.install_checkout(tmp_path_factory.mktemp("checkout"))


def _places() -> dict[str, Path | str]:
    """Environments, or why there is none."""
    found: dict[str, Path | str] = {}
    for name, framework in FRAMEWORKS.items():
        try:
            found[name] = environments.environment(framework)
        except environments.NotRun as reason:
            found[name] = str(reason)
    return found


PLACES = _places()
FOUND = [
    pytest.param(
        FRAMEWORKS[name],
        id=name,
        marks=[pytest.mark.skip(reason=place)] if isinstance(place, str) else [],
    )
    for name, place in PLACES.items()
    if (HERE / f"test_{name}.py").exists()
]


@pytest.mark.engine
@pytest.mark.parametrize("framework", FOUND)
def test_an_adapter_does_what_its_documentation_shows(
    framework: Framework, site: Path
) -> None:
    place = PLACES[framework.name]
    assert isinstance(place, Path)
    done = environments.pytest_in(
        place, site, HERE / f"test_{framework.name}.py", "-m", "quick"
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_readme_shows_the_example_that_is_run(name: str) -> None:
    adapters = Path(belljar.__file__).parent / "adapters"
    module = ast.parse((adapters / f"{name}.py").read_text())
    example = examples.of(ast.get_docstring(module, clean=False) or "")
    shown = re.findall(r"(?s)```python\n(.*?)```", (adapters / "README.md").read_text())
    assert example in shown


def test_each_framework_is_pinned_as_an_extra_of_the_package() -> None:
    import tomllib

    extras = tomllib.loads((environments.ROOT / "pyproject.toml").read_text())[
        "project"
    ]["optional-dependencies"]
    for framework in FRAMEWORKS.values():
        wanted = framework.pins[0].split("==")[0]
        assert any(each.startswith(wanted) for each in extras[framework.extra]), (
            framework.name
        )
