"""One list of options, for the command line and for Python."""

import inspect
from pathlib import Path

import pytest

from grader import GraderOptions, UserError
from grader.cli._commands import _Commands
from grader.options import COMMAND_LINE_OPTIONS
from grader.verdict.models import Device, Settings, TimeLimits


def test_every_option_is_an_option_of_grade_with_its_docstring_as_help():
    parameters = {parameter.name: parameter for parameter in _Commands()["grade"].params}
    assert set(COMMAND_LINE_OPTIONS) == set(GraderOptions.model_fields) - {"limits"}
    for name in COMMAND_LINE_OPTIONS:
        assert parameters[name].opts == [f"--{name.replace('_', '-')}"]
        assert parameters[name].help == " ".join(GraderOptions.model_fields[name].description.split())
        given = parameters[name].default
        assert getattr(given, "value", given) == GraderOptions.model_fields[name].default


def test_arguments_become_the_options_of_the_same_names():
    options = GraderOptions(device="cpu", device_index=2, quick=True, variant="small", build_cache=Path("b"))
    words = ["--device", "cpu", "--device-index", "2", "--variant", "small", "--quick", "--build-cache", "b"]
    parsed = _Commands()["grade"].make_context("grade", [*words, "x.py"]).params
    given = {name: getattr(parsed[name], "value", parsed[name]) for name in COMMAND_LINE_OPTIONS}
    assert GraderOptions().replace(**given) == options


def test_an_option_is_changed_in_a_copy():
    options = GraderOptions(device="cpu")
    changed = options.replace(quick=True, build_cache=Path("x"), limits=TimeLimits(call=1.0))
    assert (options.quick, changed.quick, changed.device) == (False, True, "cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 2}, "unknown option 'speed'; the options are device, device_index,"),
        ({"device": "tpu"}, "option 'device': unknown device 'tpu'; choose auto, cpu, cuda"),
        ({"device_index": -1}, "option 'device_index': "),
        ({"quick": "perhaps"}, "option 'quick': "),
        ({"limits": {"calls": 1}}, "unknown option 'limits.calls'"),
    ],
)
def test_a_mistake_is_one_line(changes, message):
    with pytest.raises(UserError) as raised:
        GraderOptions().replace(**changes)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_stored_settings_are_the_options_that_may_change_a_verdict():
    options = GraderOptions(device="auto", variant="small", quick=True, sandbox="weak", strict_fp32=True)
    assert options.settings(Device.CUDA) == Settings(
        device=Device.CUDA, variant="small", quick=True, sandbox="weak", strict_fp32=True
    )


def test_python_takes_options_and_changes_to_them():
    import grader

    for function in (grader.grade, grader.Grader):
        assert {"options", "changes"} <= set(inspect.signature(function).parameters)
