"""Mistakes that users make: each gets one message with a remedy, exit status 2, and nothing is lost."""

import json
import os

import pytest

from db import Store
from tests.cli.conftest import write
from tests.fakes import FakeGrader

GRADE = ["grade", "submissions", "--problems", "problems"]

MISTAKES = [
    (["grade"], "nothing to grade; name files, folders, a .jsonl, - for stdin"),
    (["grade", "nowhere"], "nowhere: no such file or folder"),
    (["grade", "submissions/an/scale.py"], "submissions/an/scale.py: no such file or folder"),
    (["grade", "submissoins"], "submissoins: no such file or folder; did you mean submissions?"),
    (["grade", "nowhere.jsonl"], "nowhere.jsonl: no such file or folder"),
    (["grade", "empty"], "empty: no submission in it; one is <author>/<problem_id>.py with a"),
    (["grade", "link.py"], "link.py: a link to gone.py, which does not exist; correct or remove the link"),
    (["grade", "links"], "links/link.py: a link to gone.py, which does not exist; correct or remove the link"),
    (["grade", "loop"], "loop/link.py: a link to link.py, which does not exist; correct or remove the link"),
    (["grade", "pipe"], "pipe: neither a file nor a folder"),
    (["grade", "submissions"], "unknown problem 'broken'; `grader problems` lists the known ones, --problems DIR adds"),
    ([*GRADE, "--problem", "scael"], "unknown problem 'scael'; did you mean scale?"),
    (["grade", "submissions/ann/broken.py", "--problems", "problems"], "problem 'broken' cannot be used: problems/"),
    (["grade", "submissions", "--problems", "nowhere"], "nowhere: no such file or folder"),
    (["grade", "submissions", "--problems", "notes.txt"], "notes.txt: not a problem; give a folder of problems"),
    ([*GRADE, "--variant", "huge"], "problem scale has no variant 'huge'; it has"),
    ([*GRADE, "--device", "tpu"], "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
    ([*GRADE, "--sandbox", "docker"], "'docker' is not one of"),
    ([*GRADE, "--author", "a\nb"], "the author 'a\\nb' has characters that are not printed; leave them out"),
    ([*GRADE, "--db", "notes.txt"], "notes.txt: the file is not an SQLite database; name another file with --db"),
    ([*GRADE, "--db", "nowhere/x.db"], "nowhere/x.db: the database cannot be opened; check that its folder exists"),
    ([*GRADE, "--db", ""], "'': no database; write a path, or sqlite:///path"),
    ([*GRADE, "--db", "sqlite:x.db"], "sqlite:///"),
    ([*GRADE, "--seconds", "0"], "option 'seconds': must be greater than 0"),
    ([*GRADE, "--workers", "two"], "Invalid value for '--workers': must be a valid integer\n"),
    ([*GRADE, "--workers", "0"], "--workers 0: use at least 1"),
    ([*GRADE, "--gpus", "0", "--workers", "2"], "GPUs and CPU workers together are not supported; name one of them"),
    ([*GRADE, "--ray", "127.0.0.1:9"], "--ray 127.0.0.1:9: no cluster there (Connection refused); start one with"),
    ([*GRADE, "--device-index", "-1"], "option 'device_index': must be greater than or equal to 0"),
    ([*GRADE, "--quik"], "No such option: --quik"),
    (["grade", "--kernelbench-run", "nowhere"], "nowhere: no such file or folder"),
    (["grade", "lines.jsonl", "--problems", "problems"], "lines.jsonl, line 1: missing field 'source'"),
    (["grade", "lines.jsonl", "--problems", "problems"], "lines.jsonl, line 2: invalid JSON: "),
    (["grade", "lines.jsonl", "--problems", "problems"], "lines.jsonl, line 3: unknown field 'foo'; the fields are"),
    (["show", "4"], "grader.db: no verdict 4; the newest is 3"),
    (["show", "first"], "Invalid value for 'ID'"),
    (["show", "1", "--db", "nowhere.db"], "nowhere.db: there is no such database; `grader grade` makes one"),
    (["show", "1", "--json", "--feedback"], "--json and --feedback: choose one of them"),
    (["leaderboard", "--problem", "scael"], "no verdict on problem 'scael'; there are verdicts on scale"),
    (["leaderboard", "--having", "fast"], "unknown label 'fast'; the labels are"),
    (["leaderboard", "--pass-at", "0"], "--pass-at 0: write whole numbers above 0, such as 1,5,10"),
    (["leaderboard", "--db", "notes.txt"], "notes.txt: the file is not an SQLite database"),
    (["diff", "1", "7"], "grader.db: no run 7; the newest is 1"),
    (["diff", "grader.db", "nowhere.db"], "nowhere.db: there is no such database"),
    (["report"], "Missing option '--out'"),
    (["report", "--out", "submissions"], "submissions: the folder is not empty and is not an earlier report; choose"),
    (["report", "--out", "notes.txt"], "notes.txt: cannot be written"),
    (["serve", "--port", "99999"], "65535"),
    (["serve", "--submit", "--tokens", "nowhere"], "nowhere: cannot be read (No such file or directory); name a file"),
    (["cancel"], "name one of --author, --batch and --run"),
    (["cancel", "--run", "99"], "run 99 is not grading now; none is"),
    (["leaderboard", "--language", "fortran"], "unknown language 'fortran'; the languages are cuda, cpp, triton"),
    (["serve", "--db", "nowhere.db"], "nowhere.db: there is no such database"),
    (["export", "--format", "xml"], "'--format': 'xml' is not one of"),
    (["export", "--out", "nowhere/x.jsonl"], "nowhere/x.jsonl: cannot be written"),
    (["export", "--level", "1"], "--level is for --format kernelbench; use --problem"),
    (["init", "started"], "started/problems/scale_silu.py exists already; choose another folder"),
    (["problems", "--problems", "nowhere"], "nowhere: no such file or folder"),
    (["--log-level", "loud", "problems"], "--log-level loud: choose debug, info, warning, error"),
    (["selftest", "--db", "x.db"], "No such option: --db"),
    (["bake"], "No such command 'bake'"),
]


@pytest.fixture
def workplace(cli, batch, tmp_path):
    """A folder with three verdicts in `grader.db`, and what a careless user may have beside it."""
    assert cli(*batch).code == 0
    (tmp_path / "notes.txt").write_text("milk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    for folder in (tmp_path, tmp_path / "links"):
        (folder / "link.py").symlink_to("gone.py")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "link.py").symlink_to("link.py")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "problems" / "broken.py").write_text("def (")
    write(tmp_path, "ann", "correct").with_name("broken.py").write_text("class ModelNew: pass")
    (tmp_path / "started" / "problems").mkdir(parents=True)
    (tmp_path / "started" / "problems" / "scale_silu.py").write_text("mine")
    lines = ({"problem": "scale"}, None, {"problem": "scale", "source": "x", "foo": 1})
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(one) if one else 'rubbish'}\n" for one in lines))
    FakeGrader.graded.clear()
    return tmp_path


def contents(folder):
    """What the folder holds but the database, and what the database holds."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".db" not in path.name}
    with Store.open(folder / "grader.db") as store:
        return files, list(store.documents())


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_explained_and_costs_nothing(cli, workplace, arguments, message):
    before = contents(workplace)
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert "pydantic" not in result.err
    assert FakeGrader.graded == []
    assert contents(workplace) == before
