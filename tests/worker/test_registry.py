"""Every step of the protocol has one handler, and one result class of the protocol."""

import pytest

from grader import protocol as p
from grader.worker.main import HANDLER_MODULES
from grader.worker.registry import HANDLERS, handles


def test_every_step_has_a_handler_in_a_registered_module():
    assert set(HANDLERS) == set(p.Step.kinds)
    assert {handler.__module__ for handler in HANDLERS.values()} == {module.__name__ for module in HANDLER_MODULES}


def test_a_second_handler_for_a_step_is_rejected():
    with pytest.raises(ValueError, match="Drop has two handlers"):
        handles(p.Drop)(lambda session, step: p.Done())


def test_every_result_answers_a_step():
    assert {step.answer for step in p.Step.kinds} == set(p.Result.kinds)


def test_tags_are_distinct():
    tags = [step.model_fields["do"].default for step in p.Step.kinds]
    assert len(set(tags)) == len(tags)
