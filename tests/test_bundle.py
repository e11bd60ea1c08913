"""The bundle's installer checks the host before it writes anything, and reports in one line what does not fit."""

import runpy
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def bundle(tmp_path):
    """A bundle with the files that the installer reads first."""
    folder = tmp_path / "bundle"
    (folder / "source").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "bundle" / "install", folder)
    shutil.copy(ROOT / "pyproject.toml", folder / "source")
    (folder / "python-version").write_text(THIS_PYTHON)
    return folder


@pytest.fixture
def bare_python(tmp_path):
    """A Python without packages."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


def install(bundle, python, *arguments, before=()):
    command = [*before, str(python), str(bundle / "install"), *map(str, arguments)]
    done = subprocess.run(command, cwd=bundle.parent, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (bundle.parent / "grader-env").exists()
    return done.returncode, done.stderr


def torch_of(version, python):
    """Install an empty package that claims to be this version of torch."""
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").touch()
    about = packages / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def test_a_wrong_python_is_told_which_one_is_right(bundle):
    (bundle / "python-version").write_text("3.99")
    code, said = install(bundle, sys.executable)
    assert code == 1
    assert f"; the bundle is for 3.99: run `python3.99 {bundle}/install`" in said


@pytest.mark.skipif(not shutil.which("setarch"), reason="needs setarch of util-linux")
def test_a_wrong_machine_is_named(bundle):
    code, said = install(bundle, sys.executable, before=("setarch", "i686"))
    assert code == 1
    assert "this is linux i686; the bundle is for Linux on x86-64" in said


def test_a_python_without_torch_is_named(bundle, bare_python):
    code, said = install(bundle, bare_python)
    assert code == 1
    assert f"{bare_python} has no torch: run this with the Python that has torch >=2.11" in said


@pytest.mark.parametrize("version", ["2.5.1+cu121", "3.0.0"])
def test_a_torch_out_of_range_is_named(bundle, bare_python, version):
    torch_of(version, bare_python)
    code, said = install(bundle, bare_python)
    assert code == 1
    assert f"has torch {version}; the grader needs >=2.11,<" in said


def test_what_is_there_already_is_not_overwritten(bundle, bare_python, tmp_path):
    torch_of("2.11.0+cu130", bare_python)
    code, said = install(bundle, bare_python, bundle)
    assert code == 1
    assert f"{bundle} exists already: remove it, or name another folder" in said


@pytest.mark.parametrize("of_the_host", [False, True])
def test_bytecode_of_what_is_imported_is_written_by_the_installer(bundle, bare_python, of_the_host):
    """Workers can read the folder and cannot write there: what has no bytecode is compiled at each start."""
    torch_of("2.11.0+cu130", bare_python)
    folder = bare_python.parents[1]
    (packages,) = folder.glob("lib/python3*/site-packages")
    installer = runpy.run_path(str(bundle / "install"))
    imported = [name.replace(".", "/") + ".py" for name in installer["IMPORTED"].split(", ")]
    for name in (*imported, "pydantic.py", "../../../source/db/store.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).touch()
    (packages / "torch" / "utils" / "cpp_extension.py").write_text("import colorsys\n")  # a module of Python itself
    if of_the_host:
        (packages / "torch" / "__pycache__").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        installer["keep_bytecode"](folder, packages)
    (packages / "later.py").touch()
    subprocess.run([bare_python, "-c", "import later"], check=True, env={})
    kept = {path.name.partition(".")[0]: path for path in folder.rglob("*.pyc")}
    assert {Path(name).stem for name in imported} | {"pydantic", "store"} <= kept.keys()
    assert ("colorsys" in kept) != of_the_host
    assert ("later" in kept) == of_the_host
    assert kept["cpp_extension"].is_relative_to(packages if of_the_host else folder / "bytecode")
