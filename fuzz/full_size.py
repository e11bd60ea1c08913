"""Seeds faults into KernelBench's problems at full size, as submissions for `grader grade -`.

python -m fuzz.full_size --checkout DIR --count 30 | grader grade - --problems DIR/KernelBench --quick --json

Each is the problem's reference with one fault around it: a gradient that vanishes for some samples or a parameter, one
with another size, narrower arithmetic, another epsilon, an output that is kept. All should be rejected, but where the
fault changes nothing: a convolution without a bias has no gradient of it to halve, and a dropout of 0 no mode.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

AROUND = """

class Output(torch.autograd.Function):
    @staticmethod
    def forward(ctx, output):
        return output.clone()

    @staticmethod
    def backward(ctx, grad_output):
        g = grad_output.clone()
        {backward}
        return g


class ModelNew(Base):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        {constructor}

    def forward(self, *inputs):
        {forward}
"""
PLAIN = "return super().forward(*inputs)"
WRAPPED = "return Output.apply(super().forward(*inputs))"
PRODUCTS = ("matmul", "nn.Conv", "nn.Linear", "bmm")
SKIPPED = re.compile("LSTM|GRU|RNN|Mamba|Arg")
"""Problems that return tuples or integers."""


class Fault(NamedTuple):
    """One fault, as the bodies of `AROUND`'s functions."""

    marks: tuple[str, ...] = ()
    """Words of which a problem must have one."""
    backward: str = "pass"
    constructor: str = "pass"
    forward: str = PLAIN


def _with(context: str, returned: str = PLAIN) -> str:
    return f"with {context}:\n    {returned}"


def _finally(before: str, after: str) -> str:
    return f"{before}\ntry:\n    {PLAIN}\nfinally:\n    {after}"


OF_LAST_PARAMETER = """\
*path, leaf = [name for name, _ in self.named_parameters()][-1].split(".")
owner = self
for part in path:
    owner = getattr(owner, part)
parameter = owner._parameters.pop(leaf)
setattr(owner, leaf, parameter.detach())"""

FAULTS = {
    "last_sample_lost": Fault(backward="g[-1] = 0", forward=WRAPPED),
    "first_sample_added": Fault(backward="g[0] = g[0] + g[-1]", forward=WRAPPED),
    "last_quarter_scaled": Fault(backward="g.view(-1)[-(g.numel() // 4) :] *= 0.98", forward=WRAPPED),
    "clamped": Fault(backward="g.clamp_(-2, 2)", forward=WRAPPED),
    "input_detached": Fault(forward="return super().forward(inputs[0].detach(), *inputs[1:])"),
    "no_graph": Fault(forward=_with("torch.no_grad()")),
    "parameter_detached": Fault(
        ("nn.Conv", "nn.Linear", "nn.Parameter"),
        forward=_finally(OF_LAST_PARAMETER, "delattr(owner, leaf)\n    owner._parameters[leaf] = parameter"),
    ),
    "bias_halved": Fault(
        ("nn.Conv", "nn.Linear"),
        constructor="[v.register_hook(lambda g: g / 2) for k, v in self.named_parameters() if k.endswith('bias')]",
    ),
    "bfloat16": Fault(
        PRODUCTS, forward=_with("torch.autocast(inputs[0].device.type, torch.bfloat16)", f"{PLAIN}.float()")
    ),
    "tensorfloat32": Fault(PRODUCTS, forward=_finally(
        "matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn\n"
        "before = matmul.allow_tf32, cudnn.allow_tf32\nmatmul.allow_tf32 = cudnn.allow_tf32 = True",
        "matmul.allow_tf32, cudnn.allow_tf32 = before",
    )),
    "float16_inputs": Fault(PRODUCTS, forward="return super().forward(*(x.half().float() for x in inputs))"),
    "last_element": Fault(
        forward="output = super().forward(*inputs)\nscale = torch.ones_like(output)\n"
        "scale.view(-1)[-1] = 1.05\nreturn output * scale"
    ),
    "epsilon": Fault(("Norm",), constructor="[setattr(m, 'eps', 1e-3) for m in self.modules() if hasattr(m, 'eps')]"),
    "momentum": Fault(
        ("BatchNorm",),
        constructor="[setattr(m, 'momentum', 0.01) for m in self.modules() if hasattr(m, 'momentum')]",
    ),
    "always_in_eval": Fault(
        ("BatchNorm", "Dropout"), forward=_finally("training = self.training\nself.eval()", "self.train(training)")
    ),
    "kept_output": Fault(
        forward="key = [x.shape for x in inputs], self.training\nif getattr(self, 'key', None) != key:\n"
        "    self.key, self.output = key, super().forward(*inputs)\nreturn self.output"
    ),
}  # fmt: skip
"""The faults by name."""


def with_fault(source: str, fault: Fault) -> str:
    """The source of a problem's Model as a submission with this fault."""
    base = re.sub(r"class Model\(", "class Base(", source).replace("super(Model, self)", "super(Base, self)")
    bodies = {name: getattr(fault, name).replace("\n", "\n        ") for name in fault._fields[1:]}
    return base + AROUND.format(**bodies)


def drawn(checkout: Path, count: int, faults: int, rng: random.Random) -> Iterator[dict[str, str]]:
    """Lines for `grader grade -`: some faults that apply to each of `count` drawn problems."""
    files = sorted((checkout / "KernelBench").glob("level[123]/*.py"))
    known = [path for path in files if not SKIPPED.search(path.stem)]
    for path in rng.sample(known, min(count, len(known))):
        source = path.read_text()
        apply = [name for name, one in FAULTS.items() if not one.marks or any(mark in source for mark in one.marks)]
        for name in rng.sample(apply, min(faults, len(apply))):
            yield {"problem": path.stem, "label": name, "source": with_fault(source, FAULTS[name])}


def main() -> int:
    """Print a line of JSON for each submission."""
    parser = argparse.ArgumentParser(
        "python -m fuzz.full_size", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--count", type=int, default=30, help="number of problems, drawn at random (30)")
    parser.add_argument("--faults", type=int, default=3, help="faults in each (3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    options = parser.parse_args()
    if not (options.checkout / "KernelBench").is_dir():
        parser.error(
            f"{options.checkout} has no folder KernelBench; give a checkout of ScalingIntelligence/KernelBench"
        )
    for line in drawn(options.checkout, options.count, options.faults, random.Random(options.seed)):
        print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
