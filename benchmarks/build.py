"""Compares cold builds by PyTorch's load_inline and by the grader.

    python -m benchmarks.build [FILE ...]

Each build runs in its own process with an empty build folder, and is timed from the import of torch to the import of
the extension. Stock and grader builds alternate, and so does the order. On a busy machine compare CPU seconds, which
count all processes. Needs nvcc for CUDA solutions, but no GPU.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path

from benchmarks.child import ask
from grader.catalog.own_folders import shipped
from grader.executor.worker_template import DEFAULT_ARCHITECTURE
from grader.machine.toolchain import find_cuda_home

BUILD = """
import json, resource, sys, time
from pathlib import Path
from torch.utils import cpp_extension
from grader.worker.compile.importing import Builder
from grader.worker.compile.toolkit import complete_toolkit

def cpu():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)

ours, path = sys.argv[1] == "ours", sys.argv[2]
complete_toolkit()
stock, runs = cpp_extension._run_ninja_build, []
cpp_extension._run_ninja_build = lambda *args, **kwargs: (runs.append(1), stock(*args, **kwargs))
if ours:
    Builder().install()
wall, used = time.monotonic(), cpu()
exec(compile(Path(path).read_text(), path, "exec"), {"__name__": "submission"})
print(json.dumps({"wall": time.monotonic() - wall, "cpu": cpu() - used, "builds": len(runs)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="sources; by default the shipped convolutions")
    parser.add_argument("--rounds", type=int, default=1, help="builds of each file each way")
    arguments = parser.parse_args()
    files = arguments.files or sorted(shipped("reference_solutions").glob("conv*.py"))
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    print(f"{'':60} {'wall s':>15} {'ratio':>6} {'CPU s':>15} {'ratio':>6}")
    for path in files:
        total = {way: {"wall": 0.0, "cpu": 0.0, "builds": 0} for way in ("stock", "ours")}
        for number in range(arguments.rounds):
            for way in ("stock", "ours") if number % 2 == 0 else ("ours", "stock"):
                for name, value in build(way, path).items():
                    total[way][name] += value
        line = f"{path.parent.name + '/' + path.name:60}"
        for figure, seen in ratios.items():
            stock, ours = total["stock"][figure], total["ours"][figure]
            seen.append(ours / stock)
            line += f" {stock / arguments.rounds:7.1f}{ours / arguments.rounds:8.1f} {ours / stock:6.2f}"
        again = total["ours"]["builds"] > total["stock"]["builds"]
        print(line + ("  (built again with the stock headers)" if again else ""), flush=True)
    means = {name: math.exp(sum(map(math.log, seen)) / len(seen)) for name, seen in ratios.items()}
    print(f"ours / stock, geometric mean: wall {means['wall']:.2f}, CPU seconds {means['cpu']:.2f}")


def build(way: str, path: Path) -> dict[str, float]:
    """`wall` and `cpu` in seconds, `builds` as the number of times that ninja ran."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TORCH_EXTENSIONS_DIR": folder,
            "TORCH_NO_COMPILER_WRAPPER": "1",
            "TORCH_CUDA_ARCH_LIST": os.environ.get("TORCH_CUDA_ARCH_LIST", DEFAULT_ARCHITECTURE),
            "MAX_JOBS": str(os.cpu_count() or 1),
        }
        if home := find_cuda_home():
            environment["CUDA_HOME"] = str(home)
        return ask(BUILD, way, path, environment=environment)


if __name__ == "__main__":
    main()
