"""`grader init`: the files that a user starts from; `tests/test_docs.py` grades them, as the README prints."""

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.errors import UserError

FILES = {
    "problems/scale_silu.py",
    "submissions/me/scale_silu.py",
    "submissions/me/scale_silu__cuda.py",
    "submissions/me/scale_silu__triton.py",
    "test_submissions.py",
}


def init(folder):
    result = CliRunner().invoke(app, ["init", str(folder)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def test_the_files_are_written_and_named(tmp_path):
    result = init(tmp_path / "a" / "b")
    assert result.exit_code == 0
    folder = tmp_path / "a" / "b"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} == FILES
    assert set(result.stdout.splitlines()) == {f"{folder}/{name}" for name in FILES}
    assert f"grader grade {folder}/submissions/me/scale_silu.py --problems {folder}/problems" in result.stderr


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "submissions" / "me").mkdir(parents=True)
    (tmp_path / "submissions" / "me" / "scale_silu.py").write_text("mine")
    with pytest.raises(UserError, match=r"submissions/me/scale_silu.py exists already; choose another folder"):
        init(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "submissions/me/scale_silu.py"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file.*: cannot be written \(Not a directory\); choose another folder"):
        init(tmp_path / "file" / "mine")
