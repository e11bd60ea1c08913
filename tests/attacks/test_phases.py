"""What a submission can see in an untimed call is what it sees in a timed one, but for the listed exceptions."""

import json
import math
from collections import defaultdict

import pytest

from grader.catalog.problem_module import FULL
from grader.grading import plan
from grader.grading.backward.judge import judge_backward
from grader.grading.forward.judge import judge_case
from grader.grading.resources import Resources
from grader.grading.timing.pair import WorkerPair
from grader.verdict.models import Device
from tests import expected as cases

RECORDER = """
import contextvars, gc, hashlib, json, os, resource, signal, sys, threading, warnings, weakref
import torch
from torch import nn

SEEN = set()


def of(x):
    return [sys.getrefcount(x), sorted(type(one).__name__ for one in gc.get_referrers(x)), x.is_shared(), x.output_nr,
            sorted(x.__dict__), x.dtype, x.device, x.is_leaf, x.requires_grad, x.grad is None, x.stride(),
            x.storage_offset(), x.untyped_storage().nbytes() == x.nbytes, x.data_ptr() % 64, x.layout,
            x.is_inference(), x.is_conj(), x.is_neg(), x._is_view(), type(x).__name__,
            weakref.getweakrefcount(x), x._base is None, x.grad_fn is None, x.is_pinned(), x.retains_grad,
            x._backward_hooks is None, torch._C._storage_Use_Count(x.untyped_storage()._cdata), x._use_count()]


def status():
    words = ("Sig", "Shd", "Cap", "NoNew", "Seccomp", "_allowed", "THP", "VmLck", "Umask", "Threads")
    return [line for line in open("/proc/self/status") if line.startswith(words) and not line.startswith("SigQ")]


def tasks():
    return sorted((open(f"/proc/self/task/{task}/comm").read(), sorted(os.sched_getaffinity(int(task))))
                  for task in os.listdir("/proc/self/task"))


def note(graph, facts):
    for what, value in facts.items():
        text = json.dumps(value, default=str)
        line = json.dumps([graph, what, text if len(text) < 900 else hashlib.sha256(text.encode()).hexdigest()])
        if line not in SEEN:
            SEEN.add(line)
            print("seen", line, flush=True)


class Watch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        note(True, {
            "grad_output": of(g),
            "backward": [torch.is_grad_enabled(), torch._C._autograd._get_current_graph_task_keep_graph(),
                         threading.current_thread().name, sorted(os.sched_getaffinity(0)), gc.isenabled()],
        })
        return g


def stack():
    frame, names = sys._getframe(), []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        graph = torch.is_grad_enabled()
        facts = {
            "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
            "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), threading.active_count(),
                        threading.current_thread().name],
            "cores": sorted(os.sched_getaffinity(0)),
            "niceness": os.nice(0),
            "limits": [resource.getrlimit(n) for n in range(16)],
            "modes": [torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
                      torch.is_autocast_enabled("cuda"), torch.is_anomaly_enabled(), torch.get_default_dtype(),
                      torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
                      torch.get_default_device(),
                      torch._C._autograd._saved_tensors_hooks_is_enabled(), torch.is_warn_always_enabled()],
            "numeric flags": [torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32,
                              torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
                              torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
                              torch.get_flush_denormal() if hasattr(torch, "get_flush_denormal") else None,
                              torch.backends.mkldnn.enabled],
            # A new seed in every call, and nothing drawn since.
            "seeds": [torch.initial_seed() > 1 << 40, torch.equal(
                torch.get_rng_state(), torch.Generator().manual_seed(torch.initial_seed()).get_state())],
            "environment": sorted(os.environ.items()),
            "folder": [os.getcwd(), sorted(os.listdir("."))],
            "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.argv, sys.flags,
                            len(warnings.filters),
                            sys.gettrace() is None, sys.getprofile() is None, threading.gettrace() is None],
            "state of Python": [gc.get_debug(), len(gc.garbage), sys.exc_info(), len(contextvars.copy_context()),
                                sys.getdlopenflags(), sys.get_int_max_str_digits(), threading.stack_size(),
                                sys.get_asyncgen_hooks(), len(sys.meta_path), len(sys.path_hooks), sys.breakpointhook,
                                sys.displayhook, sys.excepthook, sys.unraisablehook, os.get_blocking(1)],
            "state of torch": [torch._C._is_torch_function_enabled(), torch.is_grad_enabled(),
                               torch.utils.deterministic.fill_uninitialized_memory,
                               torch._C._get_autograd_fallback_mode(), torch.backends.cuda.preferred_linalg_library(),
                               torch.is_deterministic_algorithms_warn_only_enabled(), torch.jit.is_scripting(),
                               torch.compiler.is_compiling(), torch.autograd.forward_ad._current_level,
                               torch._C._functorch.maybe_current_level() if hasattr(torch._C, "_functorch") else 0],
            "handlers": [str(signal.getsignal(n)) for n in range(1, 32)],
            "descriptors": len(os.listdir("/proc/self/fd")),
            "modules": sorted(sys.modules),
            "model": [type(self).__name__, len(self._forward_hooks), len(self._forward_pre_hooks),
                      self._compiled_call_impl is None, self.training, sorted(self.__dict__)],
            "dispatch": [str(torch._C._dispatch_tls_local_include_set()),
                         str(torch._C._dispatch_tls_local_exclude_set()),
                         torch.autograd._profiler_enabled(), torch._C._get_tracing_state() is None,
                         torch.autograd.graph.get_gradient_edge(x)[1] if x.requires_grad else None],
            "files": sorted((folder, len(files)) for folder, _, files in os.walk("/tmp")),
            "mapped": sorted({line.split()[-1] for line in open("/proc/self/maps") if len(line.split()) > 5}),
            "devices": [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(4)],
            "inputs": of(x),
            "parameters": [of(p) for p in self.parameters()],
            "process": [status(), tasks(), os.sched_getscheduler(0), gc.get_freeze_count(),
                        [signal.getitimer(n) for n in range(3)], sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))],
            "stack": stack(),
            "addresses": [x.data_ptr(), id(x), id(self)],
            "input's version": x._version,
            "calls": [self.calls, *(p._version for p in self.parameters())],
        }
        note(graph, facts)
        return Watch.apply(self.down(torch.tanh(self.up(x))))
"""

EXCEPTIONS = {"stack", "addresses", "calls"}
"""Differ between any two calls, or between the handlers of two steps (docs/explanation/timing.md)."""


def seen(candidate):
    """Values that calls saw since the start, by (with a graph, what)."""
    facts = defaultdict(set)
    for line in candidate.worker.output().splitlines():
        if line.startswith("seen ["):
            graph, what, value = json.loads(line.removeprefix("seen "))
            facts[graph, what].add(value)
    return facts


@pytest.fixture(scope="module")
def phases(several_threads):
    """What the untimed calls saw, and what the timed ones of another process did."""
    problem = cases.problem("two_linears")
    submission = cases.submission(cases.CASES / "honest_plain" / "two_linears.py", "two_linears")
    submission = submission.model_copy(update={"source": RECORDER})
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        todo = plan.make(oracle, variant=FULL, quick=True)

        def untimed():
            with resources.candidate(submission, Device.CPU) as candidate:
                for case in todo.cases:  # and not the probes, which look like timed calls
                    assert judge_case(candidate, oracle, case)[1] is None
                judged = judge_backward(candidate, oracle, todo.differentiated, todo.experiments, seconds=math.inf)
                assert judged.result.status == "passed", judged.diagnoses
                return seen(candidate)

        def timed():
            with resources.candidate(submission, Device.CPU) as candidate:
                with WorkerPair(candidate, oracle, todo.timed, tf32=True) as pair:
                    for phase in ("inference", "training"):
                        assert pair.time_pair({phase: 2}, reference_first=True)[2] is None
                return seen(candidate)

        yield untimed(), timed()


@pytest.mark.parametrize("graph", [False, True])
def test_timed_calls_see_what_untimed_calls_see(phases, graph):
    untimed, timed = phases
    assert {what for with_graph, what in timed if with_graph == graph} > EXCEPTIONS
    hidden = {
        what: (values, untimed[with_graph, what])
        for (with_graph, what), values in timed.items()
        if with_graph == graph and what not in EXCEPTIONS and not values <= untimed[with_graph, what]
    }
    assert hidden == {}
