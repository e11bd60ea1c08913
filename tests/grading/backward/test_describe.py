"""The words of a diagnosis of several gradients."""

from grader.grading.backward.classify import GradientFault
from grader.grading.backward.describe import describe
from grader.grading.patterns.pattern import Pattern

DETACHED = "is that of the reference with operand 1 of `add` detached"
ROW = "is wrong at row 2 (the last of 3), and right elsewhere"


def fault(operand, text, calls=""):
    pattern = Pattern(text, "", calls=calls) if text else None
    return GradientFault("grad_wrong", operand, operand, "wrong in 3 of 3 elements", "", "off by 2", pattern=pattern)


def told(*faults):
    (diagnosis,) = describe(faults, "small")
    return diagnosis.message.partition(" (variant")[0]


def test_gradients_with_one_mistake_are_told_together():
    given = [fault("x", DETACHED), fault("w", ROW), fault("u", DETACHED), fault("v", ROW), fault("b", "")]
    text = f"gradient of `x` {DETACHED}: wrong in 3 of 3 elements; likewise `u`; that of `w` {ROW}; likewise `v`; "
    assert told(*given) == f"{text}`b` is wrong too"


def test_the_calls_in_which_a_mistake_is_made_are_told_after_it():
    given = [
        fault("x", DETACHED, ", in call 1 of 2"),
        fault("c", DETACHED, ", in both calls"),
        fault("h", DETACHED, ", in call 1 of 2"),
        fault("p", DETACHED, ", in both calls"),
    ]
    text = f"gradient of `x` {DETACHED}, in call 1 of 2: wrong in 3 of 3 elements; likewise `h`; "
    assert told(*given) == f"{text}likewise `c` and `p`, in both calls"
