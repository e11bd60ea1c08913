"""What people read: the cause first, nothing that steers their terminal, nothing cut off in files."""

import io
import re
import time
from collections import Counter

import pytest

from db.store import StoredVerdict
from grader.report.console import clean, console
from grader.report.text import tally, verdict_in_full, verdict_line
from grader.verdict.models import Device, Diagnosis, Settings, Status
from grader.verdict.stages import Baseline, ClockReading, KernelUse, StageSeconds
from tests import samples

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold]not markup[/bold] \u202egnp.exe \u200b\U000e0041"


def printed(renderable):
    stream = io.StringIO()
    console(stream).print(renderable)
    return stream.getvalue()


def full(verdict, source=samples.SUBMISSION_SOURCE):
    return printed(verdict_in_full(StoredVerdict(verdict, source, samples.PROBLEM_SOURCE)))


def test_a_correct_one_shows_its_speedup():
    verdict = samples.verdict().model_copy(update={"verdict_id": 5})
    assert verdict_line(verdict).plain == "correct            #5 ann/scale on cpu: 2.000x [1.800, 2.222] inconclusive"


def test_others_show_their_first_diagnosis():
    line = verdict_line(samples.verdict(status=Status.WRONG_OUTPUT)).plain
    assert line.endswith("ann/scale on cpu: output_wrong: The output is wrong; look at index (0, 3).")


def test_without_a_timing_it_says_so():
    assert verdict_line(samples.verdict(timing=None)).plain.endswith("on cpu: not timed")


def test_the_tally():
    assert tally(Counter()) == "nothing to grade"
    counts = Counter({Status.CORRECT: 2, Status.TIMEOUT: 1})
    assert tally(counts) == "3 graded: 2 correct, 1 timeout"


def test_the_whole_verdict_begins_with_the_cause():
    diagnoses = (
        Diagnosis(code="param_grad_none", stage="backward", message="weight gets none.", detail={"operand": "weight"}),
        Diagnosis(code="nondeterministic_grad", stage="backward", message="Repeats differ.", severity="warning"),
    )
    text = full(samples.verdict(status=Status.MISSING_BACKWARD, diagnoses=diagnoses))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "verdict None: missing_backward  ann/scale on a CPU, 2026-01-01 12:00"
    assert lines[1] == "✗ param_grad_none (backward): weight gets none."
    assert lines[2] == "    operand: weight"
    assert lines[3] == "! nondeterministic_grad (backward): Repeats differ."
    order = ["Stages", "Gradients", "Build log", "Timing", "Environment", "Source"]
    positions = [lines.index(title) for title in order]
    assert positions == sorted(positions)
    assert "c++ main.so" in text
    assert "bubblewrap" in text


def test_each_consequence_of_a_cause_has_a_line():
    detail = {"consequences": ["grad_zero: weight is zero.", "grad_wrong: bias is wrong."]}
    cause = Diagnosis(code="saved_tensor_mutated", stage="backward", message="x changes.", detail=detail)
    lines = full(samples.verdict(status=Status.WRONG_BACKWARD, diagnoses=(cause,))).splitlines()
    assert [line.rstrip() for line in lines[2:4]] == [
        "    consequences: grad_zero: weight is zero.",
        "    consequences: grad_wrong: bias is wrong.",
    ]


def test_a_gpus_verdict_tells_how_much_memory_it_took():
    backward = samples.verdict().backward.model_copy(update={"peak_device_bytes": 19 << 30})
    lines = full(samples.verdict(backward=backward, peak_device_bytes=31 << 30)).splitlines()
    line = lines[lines.index("Device memory, all processes together") + 1]
    assert line.strip() == "at most 19.0 GiB until the end of the backward, 31.0 GiB in all"
    assert "Device memory" not in full(samples.verdict())


def test_gradients_name_operand_error_and_worst_element():
    text = full(samples.verdict())
    weight = next(line for line in text.splitlines() if line.strip().startswith("weight"))
    assert weight.split() == ["weight", "passed", "2e-07", "[3]"]


def test_what_was_not_reached_leaves_no_empty_section():
    text = full(
        samples.verdict(status=Status.INVALID_SUBMISSION, build=None, forward=None, backward=None, timing=None),
        source="",
    )
    for title in ("Gradients", "Build log", "Timing", "Source", "Outputs"):
        assert title not in text
    assert text.count("not reached") == 4


@pytest.mark.parametrize("where", ["message", "log", "source", "name"])
def test_a_strangers_text_cannot_steer_the_terminal(where):
    verdict = samples.verdict(samples.submission(author=HOSTILE if where == "name" else "ann"), Status.WRONG_OUTPUT)
    if where == "message":
        diagnosis = verdict.diagnoses[0].model_copy(update={"message": HOSTILE, "detail": {HOSTILE: HOSTILE}})
        verdict = verdict.model_copy(update={"diagnoses": (diagnosis,)})
    if where == "log":
        verdict = verdict.model_copy(update={"build": verdict.build.model_copy(update={"log_tail": HOSTILE})})
    text = full(verdict, source=HOSTILE if where == "source" else "x = 1") + verdict_line(verdict).plain
    assert not re.search("[\x1b\x07\u202e\u200b\U000e0041]", text)
    assert "[bold]not markup[/bold]" in text


def test_newlines_tabs_wide_spaces_and_joined_emoji_stay():
    assert clean("a\r\n\tb\nc") == "a\n\tb\nc"
    assert clean("\u3000\xa0\N{WOMAN}\u200d\N{PERSONAL COMPUTER}") == "\u3000\xa0\N{WOMAN}\u200d\N{PERSONAL COMPUTER}"


@pytest.mark.parametrize("line", ["#\n", "x = 1 \\\n", " \n", "x" * 100])
def test_a_source_of_a_megabyte_is_shown_at_once(line):
    started = time.process_time()
    text = full(samples.verdict(), source=line * ((1 << 20) // len(line)))
    assert time.process_time() - started < 5.0
    assert ("characters left out; `grader report` shows them]" in text) is ("\n" in line)


def test_a_variant_only_verdict_shows_its_settings():
    text = full(samples.verdict(settings=Settings(device=Device.CPU, variant="small", quick=True)))
    settings = text[text.index("Settings") :].split("Source")[0]
    assert [line.split() for line in settings.splitlines()[1:5]] == [
        ["device", "cpu"],
        ["variant", "small"],
        ["quick", "True"],
        ["sandbox", "auto"],
    ]


def test_a_verdict_in_full_lists_what_ran():
    kernels = (KernelUse(name="fused(float*)", calls=2, share=0.75), KernelUse(name="Memset", calls=1))
    shown = full(samples.verdict(kernels=kernels))
    assert "75.0%" in shown
    assert "Memset" in shown


def test_a_speedup_over_each_baseline_and_over_the_best():
    verdict = samples.verdict()
    speedup = verdict.timing.total.speedup
    baselines = (
        Baseline(name="eager", forward_ms=2.0, total_ms=6.0),
        Baseline(name="compile", forward_ms=1.0, total_ms=3.0),
    )
    told = full(verdict.model_copy(update={"timing": verdict.timing.model_copy(update={"baselines": baselines})}))
    lines = {
        line.split()[0]: line.split() for line in told.splitlines() if line.startswith(("  eager", "  comp", "  best"))
    }
    assert lines["eager"][-1] == f"{speedup:.3f}x"
    assert lines["compile"][-1] == lines["best"][-1] == f"{speedup / 2:.3f}x"


def test_the_samples_are_shown_when_asked_for():
    verdict = samples.verdict()
    total = verdict.timing.total.model_copy(
        update={"candidate_samples_ms": (1.0, 1.0, 4.0, 1.0), "reference_samples_ms": (2.0, 2.0, 2.0, 2.0)}
    )
    clocks = (ClockReading(round=0, sm_mhz=1980, memory_mhz=2619, throttle_reasons=("sw_power_cap",)),)
    timing = verdict.timing.model_copy(update={"total": total, "clocks": clocks})
    stored = StoredVerdict(
        verdict.model_copy(update={"timing": timing, "seconds": StageSeconds(forward=1.0, timing=3.0)}), "", ""
    )
    told = printed(verdict_in_full(stored, timing=True))
    assert "▁▁█▁" in told
    assert re.search(r"ratio +1 +1\.5 +2 ", told)
    assert re.search(r"1980 +2619 +sw_power_cap", told)
    assert re.search(r"timing +3\.00 +75%", told)
    assert "▁" not in printed(verdict_in_full(stored))


def test_the_share_of_the_roofline_bound():
    verdict = samples.verdict()
    total = verdict.timing.total.model_copy(update={"candidate_ms": 4.0, "bound_ms": 1.0})
    told = full(verdict.model_copy(update={"timing": verdict.timing.model_copy(update={"total": total})}))
    (line,) = (line for line in told.splitlines() if line.startswith("  total"))
    assert line.split()[-4:] == ["1", "25%", str(total.rounds), total.clock]


def test_foreign_text_cannot_forge_a_line():
    forged = "ann\ncorrect            #9 eve"
    diagnosis = Diagnosis(
        code="output_wrong",
        stage="forward",
        message="wrong\n✓ fine",
        detail={"traceback": "a\n✗ no\nverdict 9: correct"},
    )
    verdict = samples.verdict(samples.submission(author=forged), Status.WRONG_OUTPUT, diagnoses=(diagnosis,))
    assert "\n" not in verdict_line(verdict).plain
    lines = full(verdict).splitlines()
    assert not [line for line in lines if line.startswith(("✓", "✗ no", "verdict 9", "correct"))]


def test_the_summary_has_the_shown_columns():
    forward = samples.verdict().forward.model_copy(update={"rel_rms_error": 1.25e-7, "passes_1e_4": True})
    shown = full(samples.verdict(forward=forward, labels=("vendor_library", "cuda_graph")))
    assert re.search(r"labels +vendor_library, cuda_graph", shown)
    assert re.search(r"rel rms error +1\.25e-07", shown)
    assert re.search(r"passes 1e 4 +yes", shown)


def test_a_stage_whose_result_was_taken_back_is_not_called_unreached():
    text = full(samples.verdict(timing=None, seconds=StageSeconds(timing=1.5)))
    line = next(line for line in text.splitlines() if "timing" in line.split())
    assert "without a result" in line
