"""Where a source ends the autograd graph."""

import pytest

from grader.verdict.graph_ends import GraphEnds, graph_ends


def submission(forward, before="pass"):
    return f"{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {forward}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (submission("return x.relu()"), GraphEnds(own_kernel=False)),
        (submission("return x.detach().relu()"), GraphEnds(False, ("`.detach()` (line 4)",))),
        (submission("return x.data + self.scale.data"), GraphEnds(False, ("`.data` (line 4)",))),
        (submission("return f(x)", "def f(x):\n    with torch.no_grad():\n        return x"),
         GraphEnds(False, ("`no_grad()` (line 2)",))),
        (submission("return f(x)", "def g(x):\n    return x.detach()"), GraphEnds(own_kernel=False)),
        (submission("return f(x.item())", "@torch.no_grad()\ndef f(x): return x"),
         GraphEnds(False, ("`.item()` (line 5)", "`no_grad()` (line 1)"))),
        (submission("return F.apply(x)",
                    "class F(torch.autograd.Function):\n    def forward(ctx, x):\n        return x.detach()"),
         GraphEnds(own_kernel=False)),
        (submission("with torch.set_grad_enabled(True):\n            return x"), GraphEnds(own_kernel=False)),
        (submission("with torch.set_grad_enabled(self.off):\n            return x"),
         GraphEnds(False, ("`set_grad_enabled()` (line 4)",))),
        (submission("return torch.utils.data.f(x)"), GraphEnds(own_kernel=False)),
        (submission("library.f(x.data_ptr())"), GraphEnds(own_kernel=True)),
        (submission("return f[1,](x.detach())", "@triton.jit\ndef f(x): pass"),
         GraphEnds(True, ("`.detach()` (line 5)",))),
        ("not python (", GraphEnds()),
    ],
)  # fmt: skip
def test_graph_ends(source, expected):
    """Only what the forward reaches outside of autograd Functions is named, with its line."""
    assert graph_ends(source) == expected
