"""The package as users get it: what is in it, what importing it costs, and which names are public."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import tdview

ROOT = Path(__file__).parents[1]
PUBLIC = """
    AlreadyExistsError Appender ArgumentError BatchSizeError Cancelled ConcurrentWriteError DecodeError
    EditRefusedError Editor EncodeError FormatError InterruptedAppendError KeyMissingError LazyStackedTensorDict
    LockedError MemoryMappedTensor MissingFileError NonTensorData NonTensorStack NotDirectoryError
    NotSupportedError PickleRefusedError Problem ReadOnlyError Registry Report Rule TdviewError TensorClass
    TensorDict TensorDictFuture UnsupportedVersionError append_memmap audit cat diff drop episodes
    from_tensordict is_memmap_archive is_tensorclass lazy_stack load load_memmap open pack_memmap recover_append
    recover_save refresh_archive_checksums rule save scan side_columns stack stats tensorclass to_tensordict
    unpack_memmap verify
"""
HEAVY = ("torch", "pandas", "matplotlib", "ipywidgets", "anywidget", "numpy", "tensordict")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_wheel_holds_the_package_the_bundle_and_the_notebooks(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tdview").rglob("*.py")}
    notebooks = {f"tdview/cli/notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    static = {f"tdview/widgets/static/{name}" for name in ("browser.js", "browser.css", "panels.js")}
    extra = {"tdview/py.typed"} | static
    info = f"tdview-{tdview.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(info)} == modules | notebooks | extra
    assert notebooks
    assert {info + "entry_points.txt", info + "licenses/LICENSE"} <= names


def test_sdist_holds_the_sources_and_the_bundle(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"js/package-lock.json", "js/src/browser.ts", "hatch_build.py", "tests/conftest.py"} <= names
    assert "tdview/widgets/static/browser.js" in names
    assert not any("node_modules" in name or "__pycache__" in name for name in names)


@pytest.mark.parametrize(
    "code",
    [
        "import tdview",
        "import tdview.format, tdview.storage, tdview.tree.scan",
        "import tdview.cli.main; tdview.cli.main.main(['--version'])",
        "import tdview.analysis, tdview.operations, tdview.containers, tdview.widgets, tdview.testing",
    ],
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    check = f"{code}; import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].strip() == ""


def test_the_public_names_are_these() -> None:
    assert sorted(tdview.__all__) == sorted(PUBLIC.split())


def test_every_public_name_resolves() -> None:
    for name in tdview.__all__:
        assert getattr(tdview, name) is not None
    assert set(tdview.__all__) <= set(dir(tdview))
    with pytest.raises(AttributeError):
        tdview.no_such_name  # noqa: B018


def test_commands_of_the_documentation_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text()
        used = set(re.findall(r"^    make ([a-z]+)", text, re.MULTILINE)) | set(re.findall(r"`make ([a-z]+)`", text))
        assert used, document
        assert used <= targets, document


def test_verbs_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    used = set(re.findall(r"^    tdview ([a-z]+)", text, re.MULTILINE)) | set(re.findall(r"`tdview ([a-z]+)", text))
    shown = subprocess.run(
        [sys.executable, "-m", "tdview", "--help"], check=True, capture_output=True, text=True
    ).stdout
    verbs = set(re.findall(r"^    ([a-z]+) ", shown, re.MULTILINE))
    assert used
    assert used <= verbs
