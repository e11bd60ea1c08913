"""Exports find the tensors of many-layered models without a walk over all modules for each of them."""

from torch import nn

from grader.worker.compile.importing import Builder
from grader.worker.session import Session


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(20)))
        self.walks = 0

    def named_buffers(self, *args, **kwargs):
        self.walks += 1
        return super().named_buffers(*args, **kwargs)


def test_one_walk_finds_all_buffers():
    model = Counted()
    session = Session(Builder())
    session.add_model("m", model)
    names = [name for name, _ in nn.Module.named_buffers(model)]
    found = dict(session.found([f"state:m:{name}" for name in names]))
    assert len(found) == 60
    assert all(found[f"state:m:{name}"] is model.get_buffer(name) for name in names)
    assert model.walks == 1


def test_an_unknown_name_is_none():
    session = Session(Builder())
    session.add_model("m", nn.Linear(1, 1))
    assert list(session.found(["state:m:missing"])) == [("state:m:missing", None)]
