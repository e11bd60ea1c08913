"""What is kept is read back by a later process, and what is damaged is made again."""

from pydantic import TypeAdapter

from grader.grading.kept_files import KeptValues, keep_file


def kept(folder):
    return KeptValues(folder, "figures", TypeAdapter(tuple[float, ...]))


def test_a_value_is_kept_under_its_key(tmp_path):
    kept(tmp_path).keep("one", (1.5, 2.0))
    assert kept(tmp_path).get("one") == (1.5, 2.0)
    assert kept(tmp_path).get("another") is None
    (file,) = tmp_path.glob("*.figures.json")
    assert file.stat().st_mode & 0o777 == 0o400


def test_a_damaged_file_is_no_value(tmp_path):
    kept(tmp_path).keep("one", (1.5,))
    (file,) = tmp_path.glob("*.figures.json")
    keep_file(file, b'{"cut of')
    assert kept(tmp_path).get("one") is None
    kept(tmp_path).keep("one", (2.5,))
    assert kept(tmp_path).get("one") == (2.5,)


def test_what_cannot_be_kept_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    kept(tmp_path / "file").keep("one", (1.5,))
    assert "cannot be kept" in caplog.text
    assert kept(tmp_path / "file").get("one") is None
