"""Problems and submissions are found and read without being imported."""

import json
import re
from pathlib import Path

import pytest

from grader.catalog.files import MAX_SOURCE_BYTES
from grader.catalog.formats.kernelbench import samples_of_run
from grader.catalog.problems import find_problems
from grader.catalog.requests import RequestReader, make_request
from grader.catalog.submissions import find_submissions
from grader.errors import UserError
from grader.options import GraderOptions
from grader.verdict.models import Device
from tests import samples

KNOWN = "`grader problems` lists the known ones, --problems DIR adds a folder of them"

EXPLOSIVE = "raise SystemExit('imported')\n" + samples.SUBMISSION_SOURCE


@pytest.fixture
def folder(tmp_path):
    """A problem folder with `scale` and `add`."""
    problems = tmp_path / "problems"
    problems.mkdir()
    for name in ("scale", "add"):
        (problems / f"{name}.py").write_text(samples.PROBLEM_SOURCE)
    return problems


@pytest.fixture
def catalog(folder):
    return find_problems([folder])


def write(path, text=samples.SUBMISSION_SOURCE):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---------------------------------------------------------------------------------------------------- problems


def test_the_shipped_problems_are_there():
    catalog = find_problems()
    assert "conv2d_mul_leaky_relu_gelu" in catalog.problems
    assert catalog.skipped == ()
    for problem_id, problem in catalog.problems.items():
        assert problem.path.stem == problem.id == problem_id
        assert problem.path.is_absolute()


def test_a_problem_is_named_by_its_id_or_its_file(catalog, folder, tmp_path):
    assert catalog.named("scale") == catalog.named(str(folder / "scale.py")) == catalog.problem("scale")
    other = write(tmp_path / "other.py", samples.PROBLEM_SOURCE)
    problem = catalog.named(other)
    assert (problem.id, problem.path) == ("other", other)
    assert catalog.including(problem).problem("other") == problem


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scael", "unknown problem 'scael'; did you mean scale?"),
        ("nowhere/scale.py", "nowhere/scale.py: "),
        ("problems", "problems: 2 problems; add --problems problems and name one"),
    ],
)
def test_a_name_that_is_no_single_problem_is_refused(catalog, tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(message)):
        catalog.named(name)


def test_a_folder_adds_its_problems(catalog, folder):
    assert catalog.problem("scale").path == folder / "scale.py"
    assert "conv2d_mul_leaky_relu_gelu" in catalog.problems


def test_folders_are_searched_recursively(tmp_path):
    write(tmp_path / "KernelBench" / "level1" / "1_Scale.py", samples.PROBLEM_SOURCE)
    write(tmp_path / "KernelBench" / "level2" / "1_Add.py", samples.PROBLEM_SOURCE)
    assert {"1_Scale", "1_Add"} <= set(find_problems([tmp_path / "KernelBench"]).problems)


def test_a_later_folder_replaces_an_earlier_one(tmp_path, folder):
    other = write(tmp_path / "other" / "scale.py", samples.PROBLEM_SOURCE + "# other\n")
    assert find_problems([folder, other.parent]).problem("scale").path == other


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def helper(): ...", "it has no class Model and no get_inputs()"),
        ("class Model: ...", "it has no get_inputs()"),
        ("def get_inputs(): ...", "it has no class Model"),
        ("def (", "syntax error in the file at line 1: invalid syntax; correct it"),
        ("", "The file is empty"),
        (b"\xff\xfe", "The file is not UTF-8: byte 0xff at offset 0"),
        ("(" * 100_000, "syntax error in the file at line 1: too many nested parentheses"),
    ],
    ids=["helper", "no inputs", "no model", "syntax", "empty", "bytes", "nested"],
)
def test_other_files_are_skipped_with_a_reason(folder, text, reason):
    path = write(folder / "other.py", text)
    (skipped,) = find_problems([folder]).skipped
    assert skipped.path == path
    assert skipped.reason.startswith(reason)


def test_two_problems_of_one_name_in_a_folder_are_reported(folder):
    write(folder / "more" / "scale.py", samples.PROBLEM_SOURCE)
    (skipped,) = find_problems([folder]).skipped
    assert "already has the id scale; rename one of them" in skipped.reason


def test_imported_and_assigned_names_count(folder):
    write(folder / "alias.py", "from base import get_inputs\nModel = object")
    assert "alias" in find_problems([folder]).problems


def test_a_folder_without_problems_is_an_error(tmp_path):
    write(tmp_path / "none" / "helper.py", "x = 1")
    with pytest.raises(UserError, match=r"none: no problem in it \(the first of 1 files: .*helper.py: it has no class"):
        find_problems([tmp_path / "none"])


def test_a_missing_folder_is_an_error(tmp_path):
    (tmp_path / "problems").mkdir()
    with pytest.raises(UserError, match=r"problem: no such file or folder; did you mean .*problems\?"):
        find_problems([tmp_path / "problem"])


# ------------------------------------------------------------------------------------------------- submissions


def search(path, catalog, **options):
    """The submissions, none refused."""
    found = find_submissions([path] if isinstance(path, Path) else path, catalog, **options)
    assert found.refused == ()
    return found.submissions


def only(path, catalog, **options):
    (submission,) = search(path, catalog, **options)
    return submission


def refusal(path, catalog, **options):
    """The message about the one file that cannot be graded."""
    found = find_submissions([path], catalog, **options)
    assert found.submissions == ()
    (refused,) = found.refused
    return str(refused)


def test_the_path_names_author_problem_and_label(tmp_path, catalog):
    submission = only(write(tmp_path / "ann" / "scale.py"), catalog)
    assert (submission.author, submission.problem_id, submission.label) == ("ann", "scale", None)
    assert submission.name == "ann/scale"
    assert submission.source == samples.SUBMISSION_SOURCE
    labelled = only(write(tmp_path / "ann" / "scale__v2__fast.py"), catalog)
    assert (labelled.problem_id, labelled.label) == ("scale", "v2__fast")


def test_the_option_overrides_the_file_name(tmp_path, catalog):
    submission = only(write(tmp_path / "ann" / "kernel.py"), catalog, problem_id="scale")
    assert (submission.problem_id, submission.label) == ("scale", "kernel")
    submission = only(write(tmp_path / "ann" / "scale__v2.py"), catalog, problem_id="add")
    assert (submission.problem_id, submission.label) == ("add", "scale__v2")


def test_a_file_in_the_current_folder_has_an_author(tmp_path, catalog, monkeypatch):
    write(tmp_path / "ann" / "scale.py")
    monkeypatch.chdir(tmp_path / "ann")
    assert only(Path("scale.py"), catalog).author == "ann"


def test_folders_are_searched_and_sorted(tmp_path, catalog):
    for name in ("bob/scale.py", "ann/scale__v2.py", "ann/add.py", ".hidden/scale.py", "ann/.scale/scale.py"):
        write(tmp_path / "s" / name)
    found = search(tmp_path / "s", catalog)
    assert [submission.name for submission in found] == ["ann/add", "ann/scale__v2", "bob/scale"]


def test_problems_beside_submissions_are_passed_over(tmp_path, folder, catalog):
    write(tmp_path / "ann" / "scale.py")
    assert [submission.author for submission in search(tmp_path, catalog)] == ["ann"]


def test_a_path_given_twice_is_graded_once(tmp_path, catalog):
    path = write(tmp_path / "ann" / "scale.py")
    assert len(search([path, tmp_path, path], catalog)) == 1 == len(search([path, path], catalog))


def test_helpers_beside_submissions_are_passed_over(tmp_path, catalog):
    write(tmp_path / "s" / "ann" / "scale.py")
    write(tmp_path / "s" / "ann" / "helper.py", "x = 1")
    write(tmp_path / "s" / "ann" / "__init__.py", "")
    assert len(search(tmp_path / "s", catalog)) == 1


def test_a_misspelt_problem_is_refused_with_the_nearest(tmp_path, catalog):
    path = write(tmp_path / "s" / "ann" / "sclae.py")
    for given in (path, tmp_path / "s"):
        assert refusal(given, catalog) == f"{path}: unknown problem 'sclae'; did you mean scale? {KNOWN}"
    with pytest.raises(UserError, match=r"^unknown problem 'ad'; did you mean add\?"):
        find_submissions([path], catalog, problem_id="ad")
    with pytest.raises(UserError, match="`grader problems` lists the known ones"):
        find_submissions([path], catalog, problem_id="0")


def test_a_missing_path_is_refused(tmp_path, catalog):
    write(tmp_path / "ann" / "scale.py")
    missing = tmp_path / "ann" / "scal.py"
    near = tmp_path / "ann" / "scale.py"
    assert refusal(missing, catalog) == f"{missing}: no such file or folder; did you mean {near}?"
    assert refusal(tmp_path / "zzz" / "scale.py", catalog).endswith("scale.py: no such file or folder")


def test_a_device_file_is_refused(catalog):
    assert "neither a file nor a folder" in refusal(Path("/dev/zero"), catalog)


def test_an_empty_folder_is_refused(tmp_path, catalog):
    (tmp_path / "none").mkdir()
    assert "none: no submission in it; one is <author>/" in refusal(tmp_path / "none", catalog)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "The file is empty"),
        (b" \n\t\n", "The file is empty"),
        (b"\x00\xff\xfe", "The file is not UTF-8: byte 0xff at offset 1"),
        ("# é".encode("latin-1"), "The file is not UTF-8: byte 0xe9 at offset 2"),
        (b"#" * (MAX_SOURCE_BYTES + 1), "The file has 1048577 bytes; at most 1048576 are read"),
    ],
    ids=["empty", "blank", "binary", "latin-1", "too large"],
)
def test_an_unreadable_file_is_a_submission_that_says_so(tmp_path, catalog, text, why):
    submission = only(write(tmp_path / "ann" / "scale.py", text), catalog)
    assert (submission.unreadable, submission.source) == (why, "")


def test_the_largest_file_and_a_byte_order_mark_are_read(tmp_path, catalog):
    largest = only(write(tmp_path / "ann" / "scale.py", b"#" * MAX_SOURCE_BYTES), catalog)
    assert largest.unreadable is None
    assert only(write(tmp_path / "ann" / "add.py", b"\xef\xbb\xbfx = 1"), catalog).source == "x = 1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "The source is empty"),
        ("#" * (MAX_SOURCE_BYTES + 1), "The source has 1048577 bytes; at most 1048576 are read"),
        ("# \ud800", "The source has an unpaired surrogate, '\\ud800', at offset 2"),
    ],
    ids=["empty", "too large", "surrogate"],
)
def test_a_text_that_cannot_be_stored_is_a_submission_that_says_so(folder, text, why):
    reader = RequestReader(find_problems([folder]))
    line = json.dumps({"problem": "scale", "source": text}).encode()
    by_hand = samples.submission(source=text)
    for problem, submission in (reader.pair(("scale", text)), reader.from_json(line, {}), reader.pair(by_hand)):
        request = make_request(problem, submission, GraderOptions(), default_device=Device.CPU)
        assert (request.submission.unreadable, request.submission.source) == (why, "")


def test_a_line_s_precision_obeys_strict_fp32(folder):
    options = GraderOptions(device="cpu", strict_fp32=True)
    fields = {"problem": "scale", "source": "x = 1", "precision": "bf16"}
    for read in (
        lambda: RequestReader(find_problems([folder]), options).from_json(json.dumps(fields).encode(), {}),
        lambda: make_request(*RequestReader(find_problems([folder])).pair(fields), options, default_device=Device.CPU),
    ):
        with pytest.raises(UserError, match="--strict-fp32 is for --precision fp32; with bf16 leave it out"):
            read()


def test_a_byte_order_mark_is_no_part_of_a_text(folder):
    _, submission = RequestReader(find_problems([folder])).pair(("scale", "\ufeffx = 1"))
    assert (submission.source, submission.unreadable) == ("x = 1", None)


@pytest.mark.parametrize("text", [EXPLOSIVE, "def (\nclass ModelNew", "x = '\0'  # ModelNew"])
def test_nothing_is_imported_and_broken_python_is_still_a_submission(tmp_path, catalog, text):
    assert only(write(tmp_path / "ann" / "scale.py", text), catalog).source == text


def test_files_of_a_kernelbench_run(tmp_path):
    write(tmp_path / "KB" / "level1" / "2_Scale.py", samples.PROBLEM_SOURCE)
    write(tmp_path / "KB" / "level2" / "2_Add.py", samples.PROBLEM_SOURCE)
    catalog = find_problems([tmp_path / "KB"])
    submission = only(write(tmp_path / "run7" / "level_2_problem_2_sample_5_kernel.py"), catalog)
    assert (submission.author, submission.problem_id, submission.sample) == ("run7", "2_Add", 5)
    assert submission.label is None


def kernelbench(root):
    """A checkout as it lies on GitHub, in small: two levels, and a prompt that looks like a problem."""
    write(root / "KernelBench" / "level1" / "1_Scale.py", samples.PROBLEM_SOURCE)
    write(root / "KernelBench" / "level1" / "23_Softmax.py", samples.PROBLEM_SOURCE)
    write(root / "KernelBench" / "level2" / "23_Softmax.py", samples.PROBLEM_SOURCE + "# level 2\n")
    write(root / "src" / "prompts" / "model_ex_add.py", samples.PROBLEM_SOURCE)
    return root


@pytest.mark.parametrize("folder", ["", "KernelBench"])
def test_a_kernelbench_checkout_offers_its_levels_only(tmp_path, folder):
    found = find_problems([kernelbench(tmp_path) / folder]).problems
    assert {"1_Scale", "level1/23_Softmax", "level2/23_Softmax"} <= set(found)
    assert "23_Softmax" not in found
    assert "model_ex_add" not in found
    assert found["level2/23_Softmax"].id == "level2/23_Softmax"


def test_one_level_of_kernelbench_keeps_plain_ids(tmp_path):
    levels = kernelbench(tmp_path) / "KernelBench"
    assert {"1_Scale", "23_Softmax"} <= set(find_problems([levels / "level1"]).problems)
    both = find_problems([levels / "level1", levels / "level2"]).problems
    assert {"1_Scale", "level1/23_Softmax", "level2/23_Softmax"} <= set(both)


def test_a_name_in_two_levels_needs_the_folder_of_a_level(tmp_path):
    catalog = find_problems([kernelbench(tmp_path / "KB")])
    submission = only(write(tmp_path / "ann" / "level2" / "23_Softmax__v2.py"), catalog)
    assert (submission.problem_id, submission.author, submission.label) == ("level2/23_Softmax", "ann", "v2")
    message = refusal(write(tmp_path / "ann" / "23_Softmax.py"), catalog)
    assert re.search(r"did you mean level\d/23_Softmax or level\d/23_Softmax\b", message)


def test_a_sample_finds_its_problem_by_level_and_number(tmp_path):
    catalog = find_problems([kernelbench(tmp_path / "KB")])
    for level in (1, 2):
        path = write(tmp_path / "run7" / f"level_{level}_problem_23_sample_0_kernel.py")
        assert only(path, catalog).problem_id == f"level{level}/23_Softmax"
    path = write(tmp_path / "run7" / "level_1_problem_2_sample_0_kernel.py")
    assert f"{path}: no problem 2 of level 1 is known; name a KernelBench checkout" in refusal(path, catalog)
    write(tmp_path / "KB" / "KernelBench" / "level1" / "1_Scale_OLD.py", samples.PROBLEM_SOURCE)
    path = write(tmp_path / "run7" / "level_1_problem_1_sample_0_kernel.py")
    message = refusal(path, find_problems([tmp_path / "KB"]))
    assert "problem 1 of level 1 may be 1_Scale.py and 1_Scale_OLD.py" in message


def test_the_samples_of_a_run_are_listed_in_order(tmp_path):
    names = ["level_1_problem_10_sample_0_kernel.py", "level_1_problem_2_sample_1_kernel.py", "prompt.py"]
    for name in names:
        write(tmp_path / "run7" / name)
    assert [path.name for path in samples_of_run(tmp_path / "run7")] == [names[1], names[0]]
    with pytest.raises(UserError, match=r"no level_L_problem_P_sample_S_kernel.py in it"):
        samples_of_run(tmp_path)


# The file names of KernelBench: ids with "__" in them and at their end, and a label behind "__" as everywhere.
LONG = "55_conv_standard_2D__asymmetric_input__square_kernel"
ENDS = "82_conv_depthwise_2D_square_"


@pytest.mark.parametrize(
    ("stem", "problem_id", "label"),
    [
        (LONG, LONG, None),
        (f"{LONG}__v2", LONG, "v2"),
        (f"{LONG}__v2__fast", LONG, "v2__fast"),
        (f"{LONG}__", LONG, None),
        (ENDS, ENDS, None),
        (f"{ENDS}__v2", ENDS, "v2"),
        ("scale__fused", "scale__fused", None),
        ("scale__fused__v2", "scale__fused", "v2"),
        ("scale__fusedish", "scale", "fusedish"),
    ],
)
def test_the_longest_known_id_in_a_file_name_counts(tmp_path, stem, problem_id, label):
    for name in ("scale", "scale__fused", LONG, ENDS):
        write(tmp_path / "problems" / f"{name}.py", samples.PROBLEM_SOURCE)
    submission = only(write(tmp_path / "ann" / f"{stem}.py"), find_problems([tmp_path / "problems"]))
    assert (submission.author, submission.problem_id, submission.label) == ("ann", problem_id, label)
    given = only(tmp_path / "ann" / f"{stem}.py", find_problems([tmp_path / "problems"]), problem_id=problem_id)
    assert given.label == label


def test_one_bad_file_does_not_stop_a_batch(tmp_path, folder):
    write(folder / "broken.py", samples.PROBLEM_SOURCE + "def (")
    catalog = find_problems([folder])
    for name in ("ann/scale.py", "ann/broken.py", "bob/sclae.py", "bob/add.py"):
        write(tmp_path / "s" / name)
    found = find_submissions([tmp_path / "s", tmp_path / "missing"], catalog)
    assert [one.name for one in found.submissions] == ["ann/scale", "bob/add"]
    first, second, third = found.refused
    line = samples.PROBLEM_SOURCE.count("\n") + 1
    assert str(first) == (
        f"{tmp_path}/s/ann/broken.py: problem 'broken' cannot be used: {folder}/broken.py: "
        f"syntax error in the file at line {line}: invalid syntax; correct it"
    )
    assert second.path == tmp_path / "s" / "bob" / "sclae.py"
    assert second.reason == f"unknown problem 'sclae'; did you mean scale? {KNOWN}"
    assert str(third) == f"{tmp_path}/missing: no such file or folder"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ann\nbob/scale.py", r"the author 'ann\\nbob'"),
        ("ann/scale__v\x1b[2K.py", r"the label 'v\\x1b\[2K'"),
        ("ann/scale__a\u202eb.py", r"the label 'a\\u202eb'"),
    ],
)
def test_names_that_could_forge_a_line_are_refused(tmp_path, catalog, name, what):
    message = refusal(write(tmp_path / name), catalog)
    assert re.search(what + " has characters that are not printed; leave them out", message)
    assert message.isprintable()


def test_paths_are_escaped_in_messages(tmp_path, catalog):
    message = refusal(tmp_path / "a\ngrader: forged", catalog)
    assert message == f"{tmp_path}/a\\ngrader: forged: no such file or folder"
    assert refusal(write(tmp_path / "ann" / "no\nne.py"), catalog).isprintable()
    with pytest.raises(UserError, match=r"the author 'a.*b' has characters that are not printed"):
        search(tmp_path, catalog, author="a\nb")


def test_a_problem_whose_name_could_forge_a_line_is_skipped(folder):
    write(folder / "a\nb.py", samples.PROBLEM_SOURCE)
    (skipped,) = find_problems([folder]).skipped
    assert str(skipped) == f"{folder}/a\\nb.py: its name has characters that are not printed; rename it"


def test_a_folder_alone_leaves_the_shipped_problems_out(folder):
    assert set(find_problems([folder], with_shipped=False).problems) == {"scale", "add"}


def test_an_author_may_be_given(tmp_path, catalog):
    assert only(write(tmp_path / "ann" / "scale.py"), catalog, author="bob").name == "bob/scale"
