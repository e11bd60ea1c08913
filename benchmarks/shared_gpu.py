"""Two graders on one GPU: do two Ray actors give the verdicts of one `Grader`, and do others disturb its times?

    python -m benchmarks.shared_gpu OUT.json [--seconds 115] [--device cpu] [--only verdicts|times]

Verdicts: submissions of tests/cases, graded by one `Grader`, then by two Ray actors with half a GPU each, which the
pool itself never asks for. Times are taken once and not compared. Each side has a build cache of its own.

Times: the tiny and the medium problem of `grader selftest --timing`, on the cores that a pool sets apart for one GPU:
alone; while another grader builds and grades on the CPU, on the cores for builds; while another grades on the same GPU.

A table is printed as it grows. OUT.json is written after each answer, so that a run that is ended keeps what it has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from grader import Grader, GraderPool
from grader.api import open_grader
from grader.catalog.problems import find_problems
from grader.grading import plan, selftest
from grader.grading.resources import Resources
from grader.grading.timing.stopping import RoundLimits
from grader.machine import host
from grader.options import GraderOptions
from grader.pool.dispatch import Dispatcher
from grader.pool.host import shared_cores
from grader.pool.messages import Setup
from grader.pool.ray_builds import BuildTasks
from grader.pool.ray_places import RayPlace
from grader.verdict.models import Device, Problem, Submission, Verdict

CASES = Path(__file__).resolve().parents[1] / "tests" / "cases"
PROBLEMS = (CASES / "problems", CASES.parents[1] / "problems")
ON_GPU = (
    "language_triton/right language_triton/forward_only language_triton/wrong_backward language_nvrtc/right "
    "language_nvrtc/forward_only language_nvrtc/wrong_backward honest_cuda/group_by_group language_cuda/right_load "
    "language_cuda/wrong_backward_load cuda_graphs/honest_own_capture cuda_graphs/fault_own_capture "
    "backward_wrong_stream/fault_default_stream"
)
ON_CPU = "backward_grad_scaled/honest backward_grad_scaled/fault_sign forward_output_wrong/fault_flag_ignored"
BUILT_ON_CPU = "language_cpp/right_load language_cpp/wrong_backward_load"
"""Compiled anew for each grading: the other grader adds a comment to the source."""
ENGINE = "benchmarks.shared_gpu:once_timed"
HALF_GPU = 0.5
VERDICTS_SHARE = 0.5
"""Most of the time for the verdicts, if times are taken too."""
PATIENCE_SECONDS = 20.0
"""Time for a process to end its sandboxes."""
Work = tuple[Problem, Submission]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=[device.value for device in Device], default="cuda")
    parser.add_argument("--seconds", type=float, default=115.0, help="begin nothing more after these")
    parser.add_argument("--only", choices=("verdicts", "times"))
    parser.add_argument("--role", choices=("selftest", "other"), help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=host.CoreShare.model_validate_json, help=argparse.SUPPRESS)
    given = parser.parse_args()
    device = Device(given.device)
    if given.role is not None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        host.share_cores(given.cores)
        (take_times if given.role == "selftest" else disturb)(device)
    else:
        end = time.monotonic() + given.seconds
        found: dict[str, Any] = {
            "device": device.value,
            "torch": torch.__version__,
            "cores": sorted(os.sched_getaffinity(0)),
        }

        def note(key: str, value: Any) -> None:
            found[key] = value
            given.out.write_text(json.dumps(found, indent=1))

        if given.only != "times":
            share = 1.0 if given.only else VERDICTS_SHARE
            compare_verdicts(device, end - (1.0 - share) * given.seconds, note)
        if given.only != "verdicts":
            compare_times(device, end, note)


# ---------------------------------------------------------------------------------------------------------- verdicts


def once_timed(options: GraderOptions) -> Grader:
    """A `Grader` that times two rounds, whatever they show."""
    vars(plan)["QUICK"] = RoundLimits(min_rounds=2, max_rounds=2, seconds=0.0)
    return open_grader(options)


def compare_verdicts(device: Device, end: float, note: Callable[[str, Any], None]) -> None:
    """Print status and codes of each submission, by one grader and by two actors."""
    names = (ON_GPU if device is Device.CUDA else ON_CPU).split()
    works = [work(name) for name in names]
    answers: dict[str, dict[str, list[Any]]] = {"one": {}, "two": {}}
    todo = dict(zip(names, works, strict=True))
    for side, grade, until in (("one", by_one_grader, (time.monotonic() + end) / 2), ("two", by_two_actors, end)):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as cache:
            options = GraderOptions(device=device.value, quick=True, seconds=30.0, build_cache=Path(cache))
            for name, verdict in grade(todo, options, until):
                answers[side][name] = result(verdict)
                note(f"verdicts of {side}", answers[side])
                print(f"{side}  {name:<42} {verdict.status:<18} {time.monotonic() - began:6.1f} s", flush=True)
        note(f"seconds of {side}", round(time.monotonic() - began, 1))
        todo = {name: todo[name] for name in answers["one"]}
    both = [name for name in names if name in answers["one"] and name in answers["two"]]
    differ = [name for name in both if answers["one"][name][:2] != answers["two"][name][:2]]
    note("compared", len(both))
    note("differ", differ)
    print(f"{len(both)} of {len(names)} compared; {len(differ)} differ {differ}", flush=True)


def result(verdict: Verdict) -> list[Any]:
    """Status, codes outside the timing, and the process that graded."""
    codes = [one.code for one in verdict.diagnoses if one.stage != "timing" and one.severity != "info"]
    return [verdict.status.value, codes, verdict.environment.device_id]


def by_one_grader(works: dict[str, Work], options: GraderOptions, end: float) -> Iterator[tuple[str, Verdict]]:
    """Verdicts in order, until the time ends."""
    with once_timed(options) as grader:
        for name, verdict in zip(works, grader.grade_many(works.values()), strict=True):
            yield name, verdict
            if time.monotonic() > end:
                return


def by_two_actors(works: dict[str, Work], options: GraderOptions, end: float) -> Iterator[tuple[str, Verdict]]:
    """Verdicts as they are reached, by two actors of a Ray started here, until the time ends."""
    import ray

    on_gpu = options.device == Device.CUDA.value
    cpus = max(4, len(os.sched_getaffinity(0)))  # as Ray counts them: two for actors, two for a build
    ray.init(num_cpus=cpus, num_gpus=int(on_gpu), include_dashboard=False, log_to_driver=False)
    needs = {"num_gpus": HALF_GPU if on_gpu else 0, "num_cpus": 1}
    setup = Setup(engine=ENGINE, options=options, device=Device(options.device))
    builds = BuildTasks(ray, options) if on_gpu else None
    places = [RayPlace(ray, f"actor {number}", setup, needs, 2, builds) for number in (1, 2)]
    settings = options.settings(setup.device)
    dispatcher = Dispatcher(places, lambda _: settings, print, hang_seconds=90.0)
    try:
        with Grader(options) as reader:
            waiting: dict[Future[Verdict], str] = {
                dispatcher.submit(reader.request(one)): name for name, one in works.items()
            }
        while waiting and time.monotonic() < end:
            for future in [future for future in waiting if future.done()]:
                yield waiting.pop(future), future.result()
            time.sleep(0.05)
        for state in dispatcher.states():
            print(f"     {state.name}: {state.graded} graded, process {state.process}, {state.state}", flush=True)
    finally:
        dispatcher.close()
        ray.shutdown()


def work(name: str, comment: str = "") -> Work:
    """A case and its problem."""
    path = CASES / f"{name}.py"
    problem_id = json.loads((path.parent / "expected.json").read_text())[path.name]["problem"]
    file = next(one for folder in PROBLEMS if (one := folder / f"{problem_id}.py").exists())
    problem = Problem(id=problem_id, path=file, source=file.read_text())
    source = path.read_text() + comment
    return problem, Submission(author="case", problem_id=problem_id, path=str(path), source=source)


# ------------------------------------------------------------------------------------------------------------- times


def compare_times(device: Device, end: float, note: Callable[[str, Any], None]) -> None:
    """Print the selftest's figures alone and beside others; each variant has its share of the time."""
    variants: dict[str, tuple[Device | None, int]] = {
        "alone": (None, 1),
        "beside builds and gradings on the CPU": (Device.CPU, 1),
        "beside a grader on the same device": (device, 2),
    }
    for left, (name, (beside, sharers)) in zip(range(len(variants), 0, -1), variants.items(), strict=True):
        until = time.monotonic() + max(1.0, (end - time.monotonic()) / left)
        cores = shared_cores(os.sched_getaffinity(0), sharers, host.thread_count())[0]
        apart = cores.model_copy(update={"own": cores.builds}) if beside is not device else cores
        other = None if beside is None else Role("other", beside, apart)
        while other is not None and not other.lines and time.monotonic() < until and other.runs():
            time.sleep(0.1)
        before = len(other.lines) if other else 0
        tested = Role("selftest", device, cores)
        with suppress(subprocess.TimeoutExpired):
            tested.process.wait(max(1.0, until - time.monotonic()))
        rows = [json.loads(one) for one in tested.ended()]
        graded = len(other.ended()) - before if other else 0
        summary = selftest.summary([selftest.Comparison(**row) for row in rows])
        note(f"times {name}", {"summary": summary, "rows": rows, "graded meanwhile": graded, "own cores": cores.own})
        print(f"{name}: {line(summary)}; {graded} graded meanwhile", flush=True)
        for row in rows:
            what = f"{row['planted']:.0%} planted" if row["planted"] else "itself"
            print(
                f"    {row['problem']:<8} {what:<11} {row['figure']:<9} {row['reference_ms']:9.4f} ms  "
                f"{row['speedup']:.4f} [{row['ci_low']:.4f}, {row['ci_high']:.4f}] {row['verdict']}",
                flush=True,
            )


def line(summary: dict[str, Any]) -> str:
    """The figures of a summary; those of nothing measured are left out."""
    if not summary["compared"]:
        return "nothing measured"
    return (
        f"|ratio - 1| {summary['median_error']:.2%} median, {summary['worst_error']:.2%} worst, "
        f"{summary['called_faster'] + summary['called_slower']} of {summary['compared']} called different, "
        f"{summary['planted_found']} of {summary['planted']} slowdowns found"
    )


class Role:
    """This module in a process of its own, which has some cores; `lines` are what it has printed."""

    def __init__(self, name: str, device: Device, cores: host.CoreShare) -> None:
        wanted = ["--role", name, "--device", device.value, "--cores", cores.model_dump_json()]
        command = [sys.executable, "-m", "benchmarks.shared_gpu", os.devnull, *wanted]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def ended(self) -> list[str]:
        """End it; the lines of answers that it has printed."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reading.join()
        return self.lines

    def _read(self) -> None:
        assert self.process.stdout is not None
        for one in self.process.stdout:
            self.lines += [one] if one.startswith("{") else []


def take_times(device: Device) -> None:
    """Print the selftest's comparisons of its two short problems."""
    convolution = find_problems(()).problem(selftest.CONVOLUTION)
    with Resources() as resources:
        for problem in selftest.problems(device, convolution)[:2]:
            for comparison in selftest.compared(resources, device, problem, 1):
                print(json.dumps(asdict(comparison)), flush=True)


def disturb(device: Device) -> None:
    """Grade without end; each grading on the CPU compiles its source anew."""
    names = (ON_GPU if device is Device.CUDA else BUILT_ON_CPU).split()
    endless = (work(name, f"\n# {number}\n") for number, name in enumerate(itertools.cycle(names)))
    with tempfile.TemporaryDirectory() as cache:
        options = GraderOptions(device=device.value, quick=True, build_cache=Path(cache))
        with Grader(options) if device is Device.CUDA else GraderPool(options) as grader:
            for verdict in grader.grade_many(endless):
                print(json.dumps([verdict.submission, verdict.status]).join("{}"), flush=True)


if __name__ == "__main__":
    main()
