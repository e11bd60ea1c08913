"""Sources that take Python's parser long: f-strings minutes, before Python 3.12; much code seconds and gigabytes."""

import ast

import pytest

from grader.catalog.files import MAX_SOURCE_BYTES
from grader.catalog.source_analysis import analyse
from grader.grading.build import check_source
from grader.grading.stopped import Stopped
from grader.verdict.feedback import feedback
from grader.verdict.labels import labels
from grader.verdict.models import Diagnosis, Status
from grader.verdict.python_source import parse
from tests import samples
from tests.pace import seconds

MANY = 300_000
HOSTILE = {
    "one line": f"x = f'{'{x}' * MANY}'",
    "many lines": f'x = rf"""{"{x}" * 80_000}{chr(10) * 500_000}"""',
    "not closed": f"x = F'{'{x}' * MANY}",
}


@pytest.fixture(params=HOSTILE)
def hostile(request):
    return samples.SUBMISSION_SOURCE + HOSTILE[request.param]


def test_a_long_f_string_is_refused_at_once(hostile):
    def check():
        with pytest.raises(Stopped, match="f-strings have too many expressions"):
            check_source(samples.submission(source=hostile))

    assert seconds(check) < 1.0


def test_a_long_f_string_is_read_by_its_text_at_once(hostile):
    assert seconds(lambda: analyse(hostile)) < 1.0


def test_feedback_on_a_long_f_string_comes_at_once(hostile):
    wrong = Diagnosis(code="output_wrong", stage="forward", message="wrong")
    verdict = samples.verdict(status=Status.WRONG_OUTPUT, diagnoses=(wrong,))
    assert seconds(lambda: feedback(verdict, source=hostile)) < 1.0


@pytest.mark.parametrize(
    "source",
    [
        "\n".join(["x = f'{x} {y:>{z}}'"] * 2_000) + f"# {'-' * 200_000}",
        f"x = '''{'{' * 500_000}'''  # {'{' * 400_000}",
        f"x = f'''{'a' * 500_000}{'{x}' * 500}'''",
    ],
    ids=["many short ones", "no f-strings", "long text"],
)
def test_other_long_sources_are_parsed(source):
    assert ast.dump(parse(source)) == ast.dump(ast.parse(source))


def test_what_python_refuses_otherwise_is_a_syntax_error_too():
    for source in ("\x00", "-" * 100_000 + "1", "x = " + "9" * 10_000):
        with pytest.raises(SyntaxError, match=r"\w+"):
            parse(source)


DENSE = {"lines": "1\n", "calls": "a()\n", "sums": "a+a\n", "starred": "*a,", "warnings": "1()\n"}


@pytest.fixture(params=DENSE)
def dense(request):
    start = samples.SUBMISSION_SOURCE + "x = "
    return start + DENSE[request.param] * ((MAX_SOURCE_BYTES - len(start)) // len(DENSE[request.param]))


def test_the_longest_source_takes_two_seconds(dense, recwarn):
    wrong = Diagnosis(code="output_wrong", stage="forward", message="wrong")
    verdict = samples.verdict(status=Status.WRONG_OUTPUT, diagnoses=(wrong,))
    for read in (
        lambda: check_source(samples.submission(source=dense)),
        lambda: analyse(dense),
        lambda: labels(dense, samples.PROBLEM_SOURCE),
        lambda: feedback(verdict, source=dense),
    ):
        assert seconds(read) < 2.0
    assert not recwarn


def test_much_code_without_the_class_is_refused():
    with pytest.raises(Stopped, match="ModelNew"):
        check_source(samples.submission(source="a = a + a\n" * 50_000))
