"""A pool of processes: nothing is lost and nothing graded twice when they end, and each sees its device alone.

The processes grade at no cost (`tests.pool.engine`); the last tests grade for real.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future, wait
from itertools import count
from pathlib import Path

import pytest

from grader import Grader, GraderPool, Status, UserError
from grader.catalog.requests import make_request
from grader.errors import Cancelled, DeviceError, GraderError, NotGraded
from grader.options import GraderOptions
from grader.pool import local
from grader.pool.host import chosen, host_places, shared_cores
from grader.pool.local import ProcessPlace
from grader.pool.pool import ENGINE
from grader.pool.stream import Stream
from grader.verdict.models import Device
from grader.verdict.precision import Precision
from tests import samples

ROOT = Path(__file__).resolve().parents[2]
CHEAP = "tests.pool.engine:CheapGrader"
PATIENCE_SECONDS = 60.0
"""For what must happen at all."""


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def said():
    return []


def pool(said, **options):
    return GraderPool(say=said.append, **{"workers": 2, "engine": CHEAP, **options})


def work(name, *commands, status="correct"):
    lines = [f"# status: {status}", f"# {name}", *(f"# {command}" for command in commands)]
    return samples.problem(), samples.submission(author=name, source="\n".join([*lines, samples.SUBMISSION_SOURCE]))


def place_once(grader_pool, name, state):
    """The place of this name once `state` is true of it."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not state(place := {place.name: place for place in grader_pool.places()}[name]):
        assert time.monotonic() < until, place
        time.sleep(0.01)
    return place


def authors(verdicts):
    return Counter(verdict.author for verdict in verdicts)


def test_verdicts_come_as_they_are_reached(said, tmp_path):
    go_on = tmp_path / "go on"
    with pool(said) as two:
        slow, quick = work("slow", f"wait for: {go_on}"), [work(f"quick{number}") for number in range(5)]
        verdicts = two.grade_many([slow, *quick])
        first = [next(verdicts) for _ in range(4)]  # its process holds one more, which it prepares for
        go_on.touch()
        last = list(verdicts)
    assert authors(first + last) == Counter(["slow", *(f"quick{number}" for number in range(5))])
    assert "slow" in authors(last)


def test_work_without_end_is_read_a_few_ahead(said):
    read = []

    def endless():
        number = 0
        while True:
            read.append(number)
            yield work(f"author{number}")
            number += 1

    with pool(said) as two:
        verdicts = two.grade_many(endless())
        for _ in range(20):
            next(verdicts)
        verdicts.close()
        assert len(read) <= 20 + two.capacity + 2
        assert two.grade(source=work("after")[1].source, problem=samples.problem()).status is Status.CORRECT


def test_what_is_submitted_while_its_caller_leaves_is_cancelled():
    goes_on, futures = threading.Event(), {"ann": Future(), "bob": Future()}

    def requests():
        yield make_request(*work("ann"), GraderOptions(device="cpu"), default_device=Device.CPU)
        goes_on.wait(PATIENCE_SECONDS)
        yield make_request(*work("bob"), GraderOptions(device="cpu"), default_device=Device.CPU)

    def submit(request):
        if request.submission.author == "ann":
            futures["ann"].set_result(samples.verdict(request.submission))
        else:
            leaving.start()
            leaving.join(0.5)  # it waits for this one
        return futures[request.submission.author]

    results = Stream(requests(), submit, most_in_flight=2).results()
    leaving = threading.Thread(target=results.close)
    assert next(results)[0].submission.author == "ann"
    goes_on.set()
    with pytest.raises(CancelledError):
        futures["bob"].result(PATIENCE_SECONDS)


def test_a_source_is_graded_as_often_as_it_comes(said):
    problem, first = work("ann")
    with pool(said, workers=1) as one:
        batch = [(problem, first.model_copy(update={"author": name})) for name in ("ann", "bob", "ann")]
        assert authors(one.grade_many(batch)) == Counter(["ann", "bob", "ann"])
        assert sum(place.graded for place in one.places()) == 3


def test_a_process_that_is_killed_loses_nothing(said, tmp_path):
    killed = tmp_path / "killed"
    batch = [work(f"author{number}", *([f"wait for: {killed}"] if number >= 5 else [])) for number in range(30)]
    batch[25] = work("author25", f"die once: {tmp_path / 'died'}")  # not in hand when the others are killed
    with pool(said) as two:
        verdicts = two.grade_many(batch)
        found = [next(verdicts) for _ in range(5)]
        for place in [place_once(two, place.name, lambda one: one.under_way) for place in two.places()]:
            os.kill(place.process, signal.SIGKILL)
        killed.touch()
        found += verdicts
    assert authors(found) == Counter(f"author{number}" for number in range(30))
    assert {verdict.status for verdict in found} == {Status.CORRECT}
    assert said == []


def test_a_submission_that_ends_two_processes_is_crashed(said):
    with pool(said) as two:
        killer, *others = sorted(
            two.grade_many([work("author0", "die"), *(work(f"author{number}") for number in range(1, 6))]),
            key=lambda verdict: verdict.author,
        )
    assert killer.status is Status.CRASHED
    assert killer.diagnoses[0].code == "crashed"
    assert "2 grading processes ended" in killer.diagnoses[0].message
    assert "SIGKILL" in killer.diagnoses[0].message
    assert {verdict.status for verdict in others} == {Status.CORRECT}


def test_a_place_without_an_answer_is_lost(said, tmp_path):
    (hung, *_) = pool_of_hung = [work("hung", "sleep: 60"), work("fine")]
    with pool(said, hang_seconds=4.0) as two:
        verdicts = {verdict.author: verdict for verdict in two.grade_many(pool_of_hung)}
    assert verdicts["fine"].status is Status.CORRECT
    assert verdicts[hung[1].author].status is Status.CRASHED
    assert "gave no answer for 4 s" in verdicts["hung"].diagnoses[0].message


@pytest.mark.parametrize("closed", [True, False])
def test_a_place_that_takes_no_request_is_lost_too(said, tmp_path, monkeypatch, closed):
    """It reads nothing any more, and what is sent fills the pipe."""
    monkeypatch.setattr(local, "SEND_SECONDS", 60.0 if closed else 1.0, raising=False)
    monkeypatch.setattr(local, "END_SECONDS", 1.0)
    with pool(said, workers=1) as one:
        place = one.places()[0]
        one.submit(work("first")).result()
        os.kill(place_once(one, place.name, lambda one: one.process).process, signal.SIGSTOP)
        future = one.submit(work("ann", "x" * 900_000))
        if closed:
            place_once(one, place.name, lambda one: one.under_way == "ann/scale")
            time.sleep(1.0)  # it is being sent
            threading.Thread(target=one.close, daemon=True).start()
            with pytest.raises(GraderError, match="the pool was closed"):
                future.result(60)
        else:
            assert future.result(60).status is Status.CORRECT


def test_each_gpu_is_seen_by_one_process_alone(said, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-abc,6")
    with pool(said, workers=None, gpus="all") as three:
        assert [place.name for place in three.places()] == ["GPU 4", "GPU-abc", "GPU 6"]
        seen, verdicts = set(), three.grade_many(work(f"author{number}", "sleep: 0.1") for number in count())
        while seen != {"4", "GPU-abc", "6"}:  # the last process may start late
            seen.add(next(verdicts).environment.device_id)
        verdicts.close()
        assert len(three.environments_for(work("ann"))) == 1


def test_a_gpu_without_a_context_is_set_aside_with_one_line(said, monkeypatch):
    monkeypatch.setenv("GRADER_TEST_FAULTY", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pool(said, workers=None) as two:
        assert len(list(two.grade_many([work(f"author{number}", "sleep: 0.1") for number in range(8)]))) == 8
        while not said:  # its process may start late
            time.sleep(0.05)
        states = {place.name: place.state for place in two.places()}
    assert said == ["GPU 1 is set aside: no context; 1 of 2 are left"]
    assert states == {"GPU 0": "ready", "GPU 1": "set aside"}


def test_a_gpu_that_is_lost_later_is_set_aside_also_where_the_device_was_named(said, monkeypatch, tmp_path):
    """A grader for a device that is not there raises UserError, which ended the whole pool."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    done = tmp_path / "done"
    with pool(said, workers=None, device="cuda") as two:
        futures = [two.submit(work(name, f"wait for: {done}")) for name in ("ann", "bob")]
        first, second = (place_once(two, name, lambda place: place.under_way) for name in ("GPU 0", "GPU 1"))
        monkeypatch.setenv("GRADER_TEST_FAULTY", "1")
        os.kill(second.process, signal.SIGKILL)
        place_once(two, "GPU 1", lambda place: place.process != second.process)
        done.touch()
        assert [future.result().status for future in futures] == [Status.CORRECT, Status.CORRECT]
        place_once(two, "GPU 1", lambda place: place.state == "set aside")
        monkeypatch.setenv("GRADER_TEST_FAULTY", "0,1")
        os.kill(first.process, signal.SIGKILL)
        with pytest.raises(DeviceError, match="nothing is left to grade on: --device cuda: no CUDA device is here"):
            two.submit(work("cid")).result()
    assert said == [
        "GPU 1 is set aside: --device cuda: no CUDA device is here; 1 of 2 are left",
        "GPU 0 is set aside: --device cuda: no CUDA device is here; 0 of 2 are left",
    ]


def test_without_a_place_there_is_one_line(said, monkeypatch):
    monkeypatch.setenv("GRADER_TEST_FAULTY", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(DeviceError, match="nothing is left to grade on: no context; mend it"):
        pool(said, workers=None)


def test_a_gpu_that_fails_in_the_middle_gets_a_new_process_and_its_submission_another(said, monkeypatch, capfd):
    """The fault shows when a grading has failed; a failed grading is tried once more elsewhere."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pool(said, workers=None) as two:
        (verdict,) = two.grade_many([work("ann", status="grader_error")])
        assert next(two.grade_many([work("bob")])).status is Status.CORRECT
    assert verdict.status is Status.CRASHED
    assert "an illegal memory access" in verdict.diagnoses[0].message
    assert "Fatal Python error" not in capfd.readouterr().err  # as it ends while a thread reads stdin


def test_closing_ends_what_is_under_way(said, tmp_path):
    two = pool(said)
    future = two.submit(work("ann", f"wait for: {tmp_path / 'never'}"))
    processes = [place.process for place in two.places() if place.process]
    two.close()
    with pytest.raises(GraderError, match="the pool was closed"):
        future.result(0)
    assert not [process for process in processes if Path(f"/proc/{process}").exists()]


def test_a_future_that_is_cancelled_in_time_is_not_graded(said, tmp_path):
    cancelled = tmp_path / "cancelled"
    with pool(said, workers=1) as one:
        busy = [one.submit(work(f"busy{number}", f"wait for: {cancelled}")) for number in range(3)]
        late = one.submit(work("late"))
        assert late.cancel()
        cancelled.touch()
        assert [future.result().author for future in busy] == ["busy0", "busy1", "busy2"]
        assert sum(place.graded for place in one.places()) == 3


def test_what_is_stopped_ends_at_its_next_job_and_the_others_go_on(said):
    with pool(said, workers=1) as one:
        requests = [one.request(work(name, "sleep: 30")) for name in ("runs", "prepared", "waits")]
        requests.append(one.request(work("fine")))
        three_are_submitted = threading.Event()

        def work_that_is_read():
            yield from requests[:3]
            three_are_submitted.set()
            yield requests[3]

        def stop():
            three_are_submitted.wait(PATIENCE_SECONDS)
            place_once(one, "CPU worker 1", lambda place: place.under_way)
            for request in requests[:3]:
                one.stop(request)

        threading.Thread(target=stop).start()
        found = {request.submission.author: verdict for request, verdict in one.results(work_that_is_read())}
        graded = {place.process for place in one.places()}
        assert one.grade(source="# status: correct", problem=samples.problem()).status is Status.CORRECT
        assert {place.process for place in one.places()} == graded
    assert found.pop("fine").status is Status.CORRECT
    assert sorted(found) == ["prepared", "runs", "waits"]
    assert {type(verdict) for verdict in found.values()} == {Cancelled}


def test_what_is_cancelled_after_its_place_was_lost_ends(said, tmp_path):
    with pool(said, workers=1) as one:
        future = one.submit(work("ann", f"wait for: {tmp_path / 'never'}"))
        lost = place_once(one, "CPU worker 1", lambda place: place.under_way == "ann/scale")
        os.kill(lost.process, signal.SIGKILL)
        place_once(one, "CPU worker 1", lambda place: place.process != lost.process)
        one.cancel("ann")
        assert wait([future], PATIENCE_SECONDS).done
        with pytest.raises(Cancelled, match="ann/scale: cancelled"):
            future.result()
        assert one.submit(work("bob")).result().status is Status.CORRECT


def test_a_future_that_is_cancelled_before_its_turn_is_done_for_who_waits(said, tmp_path):
    done = tmp_path / "done"
    with pool(said, workers=1) as one:
        futures = [one.submit(work("ann", f"{number}", f"wait for: {done}")) for number in range(4)]
        one.cancel("ann")
        assert wait(futures, PATIENCE_SECONDS).not_done == set()


def test_what_is_cancelled_as_its_process_ends_is_not_graded_again(said, tmp_path):
    with pool(said, workers=1) as one:
        future = one.submit(work("ann", f"wait for: {tmp_path / 'never'}"))
        place = place_once(one, "CPU worker 1", lambda place: place.under_way == "ann/scale")
        os.kill(place.process, signal.SIGSTOP)  # it reads nothing any more
        one.cancel("ann")
        os.kill(place.process, signal.SIGKILL)
        with pytest.raises(Cancelled):
            future.result(PATIENCE_SECONDS)


def test_no_number_means_two_requests_in_two_lives_of_a_place(said, tmp_path, monkeypatch):
    """A stop that arrives in the next life would end the wrong one."""
    sent, send = [], ProcessPlace.send

    def recorded(place, number, request):
        sent.append((request.submission.author, number))
        send(place, number, request)

    monkeypatch.setattr(ProcessPlace, "send", recorded)
    with pool(said, workers=1) as one:
        for pair in (work("ann"), work("bob", f"die once: {tmp_path / 'died'}")):
            assert one.submit(pair).result().status is Status.CORRECT
    authors, numbers = zip(*sent, strict=True)
    assert authors == ("ann", "bob", "bob")
    assert numbers[0] not in numbers[1:]


def test_a_stop_that_comes_while_a_process_starts_does_not_end_it(monkeypatch):
    (place,) = host_places(GraderOptions(device="cpu"), None, 1, CHEAP)
    stopping = threading.Thread(target=place.stop, args=[1])

    def meanwhile():
        stopping.start()
        stopping.join(0.5)  # it waits for the start

    monkeypatch.setattr("grader.pool.logs.wanted_level", meanwhile)
    try:
        assert place.start().environments
    finally:
        place.end()
        stopping.join()


def test_an_author_is_cancelled_and_who_has_the_same_source_is_not(said, tmp_path):
    cancelled, found = tmp_path / "cancelled", []
    problem, first = work("ann", f"wait for: {cancelled}")
    copy = first.model_copy(update={"author": "bob"})
    with pool(said) as two:

        def cancel():
            for place in two.places():
                place_once(two, place.name, lambda one: one.under_way)
            two.cancel("ann")

        threading.Thread(target=cancel).start()
        work_of_both = [(problem, first), (problem, copy), work("ann", "2", f"wait for: {tmp_path / 'never'}")]
        for request, verdict in two.results(map(two.request, work_of_both)):
            found.append((request.submission.author, type(verdict).__name__))
            if len(found) == 2:  # both of ann's
                cancelled.touch()
    assert sorted(found) == [("ann", "Cancelled"), ("ann", "Cancelled"), ("bob", "Verdict")]


def test_a_higher_priority_goes_first_and_authors_take_turns(said, tmp_path):
    order, all_wait = [], tmp_path / "all wait"
    with pool(said, workers=1) as one:
        one.submit(work("busy", f"wait for: {all_wait}"))
        flood = [one.submit(work("ann", f"{number}", "sleep: 0.02")) for number in range(10)]
        late, urgent = one.submit(work("bob")), one.submit(work("cid"), priority=1)
        for name, future in (*((f"ann{n}", one) for n, one in enumerate(flood)), ("bob", late), ("cid", urgent)):
            future.add_done_callback(lambda _, name=name: order.append(name))
        all_wait.touch()
        wait([*flood, late, urgent])
    assert order.index("cid") <= 2  # behind what its process holds already
    assert order.index("bob") <= 4


def test_a_grading_over_the_limit_ends_without_a_verdict_and_is_not_tried_again(said):
    with pool(said, limit_seconds=2.0) as two:
        results = two.results(map(two.request, [work("slow", "sleep: 60"), work("fine")]))
        found = {request.submission.author: verdict for request, verdict in results}
    assert found["fine"].status is Status.CORRECT
    assert str(found["slow"]) == "stopped after 2 s, which is the limit for one grading here"


def test_an_event_loop_goes_on_meanwhile(said):
    async def main():
        return [verdict.author async for verdict in two.agrade_many([work("ann"), work("bob")])]

    with pool(said) as two:
        assert sorted(asyncio.run(main())) == ["ann", "bob"]


def test_a_pool_grades_in_the_precision_that_was_asked_for(said):
    problem, submission = work("ann")
    asked = submission.model_copy(update={"author": "bob", "precision": Precision.FP16})
    with pool(said, precision="bf16") as two:
        found = {verdict.author: verdict for verdict in two.grade_many([(problem, submission), (problem, asked)])}
        assert two.settings_for((problem, asked)).precision == "fp16"
    assert {author: verdict.settings.precision for author, verdict in found.items()} == {"ann": "bf16", "bob": "fp16"}


def test_invalid_work_is_named(said):
    with pool(said) as two, pytest.raises(UserError, match="unknown problem 'nothing'"):
        list(two.grade_many([work("ann"), ("nothing", "x = 1")]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": "0"}, "--gpus 0: there is no GPU to grade on; use --workers N for the CPU"),
        ({"workers": 0}, "--workers 0: use at least 1"),
        ({"gpus": "0", "workers": 2}, "GPUs and CPU workers together are not supported; name one of them"),
        ({"device_index": 1, "workers": 1}, "name GPUs with --gpus instead"),
    ],
)
def test_a_choice_that_does_not_exist_is_one_line(said, options, message):
    with pytest.raises(UserError, match=message):
        pool(said, **{"workers": None, **options})


def test_gpus_are_chosen_by_index_or_uuid():
    names = ("4", "GPU-abc", "6")
    assert chosen("all", names) == chosen(None, names) == names
    assert chosen("0,2", names) == chosen([0, 2], names) == ("4", "6")
    assert chosen("GPU-abc", names) == ("GPU-abc",)
    for wrong, message in (("3", "no GPU '3'; 3 are visible"), ("x", "no GPU 'x'"), ("0,0", "named twice")):
        with pytest.raises(UserError, match=message):
            chosen(wrong, names)


def test_builds_and_timed_processes_have_cores_of_their_own_where_there_are_enough():
    eight = shared_cores(range(128), 8, threads=8)
    own = [set(cores.own) for cores in eight]
    assert [len(cores) for cores in own] == [12] * 8
    assert len(set.union(*own)) == 96
    assert set(eight[0].builds) == set(range(96, 128))
    (alone,) = shared_cores(range(10), 1, threads=8)
    assert (set(alone.own), alone.builds) == (set(range(8)), (8, 9))
    (few, _) = shared_cores(range(16), 2, threads=8)
    assert few.own is None
    assert set(few.builds) == set(range(8, 16))


def test_what_the_processes_log_reaches_the_handlers_here(said, monkeypatch):
    records = []
    handler = logging.Handler(logging.INFO)
    monkeypatch.setattr(handler, "emit", records.append)
    logger = logging.getLogger("grader")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.INFO)
    with pool(said, workers=1) as one:
        list(one.grade_many([work("ann", "log: a stage ended")]))
    (record,) = [record for record in records if record.getMessage() == "a stage ended"]
    assert (record.levelname, record.stage) == ("INFO", "build")
    assert record.process != os.getpid()


CASES = ROOT / "tests" / "cases"


@pytest.mark.slow
def test_real_gradings_on_two_workers(said):
    right = (CASES / "honest_plain" / "scale_bias_relu.py").read_text()
    wrong = right.replace("x * self.scale", "x * self.scale.abs()")
    options = {"engine": ENGINE, "device": "cpu", "quick": True, "seconds": 0.5, "problems": [CASES / "problems"]}
    with pool(said, **options) as two:
        batch = [("scale_bias_relu", source) for source in (right, wrong)]
        statuses = {verdict.source_hash: verdict for verdict in two.grade_many(batch)}
    assert sorted(verdict.status for verdict in statuses.values()) == [Status.CORRECT, Status.WRONG_OUTPUT]
    assert {verdict.environment.host for verdict in statuses.values()} == {os.uname().nodename}
    assert said == []


def test_a_profile_comes_between_gradings_in_its_turn(said):
    with pool(said, workers=1) as one:
        before, after = (one.submit(work(name, "sleep: 0.3")) for name in ("before", "after"))
        assert one.profile(work("ann")).submission == "ann/scale"
        assert before.done()
        assert one.grade_many([work("last")]).__next__().author == "last"
        assert after.result().author == "after"


def test_a_submission_that_ends_processes_has_no_profile(said):
    with pool(said) as two, pytest.raises(NotGraded, match="it ended 2 processes"):
        two.profile(work("deadly", "die"))


def test_a_real_profile_and_why_there_is_none(said):
    right = (CASES / "honest_plain" / "scale_bias_relu.py").read_text()
    options = {"engine": ENGINE, "device": "cpu", "workers": 1, "problems": [CASES / "problems"]}
    with pool(said, **options) as one:
        profile = one.profile(("scale_bias_relu", right))
        assert {"aten::mul", "aten::relu"} <= {kernel.name for kernel in profile.candidate.forward.kernels}
        with pytest.raises(UserError, match="not here"):
            one.profile(("scale_bias_relu", "raise ValueError('not here')\n" + right))


SLEEPY = """

_forward = ModelNew.forward


def slowly(self, *args):
    import time

    time.sleep(0.5)
    return _forward(self, *args)


ModelNew.forward = slowly
"""


@pytest.mark.slow
def test_a_grading_that_is_stopped_ends_at_its_next_job_and_the_next_one_is_right():
    right = (CASES / "honest_plain" / "scale_bias_relu.py").read_text()
    options = {"device": "cpu", "quick": True, "seconds": 0.5, "problems": [CASES / "problems"]}
    with Grader(**options) as grader:
        requests = [grader.request(("scale_bias_relu", source)) for source in (right + SLEEPY, right)]
        threading.Timer(6.0, grader.stop, requests[:1]).start()
        (stopped, first), (other, second) = grader.results(requests)
        assert (stopped, other) == tuple(requests)
        assert type(first) is Cancelled
        assert second.status is Status.CORRECT, second.diagnoses
        assert grader.grade(source=right + SLEEPY.replace("0.5", "0"), problem="scale_bias_relu").status == "correct"
