"""Measures by how much noise on the operands moves each element of the reference's results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare import nonsmooth, ties
from grader.grading.compare.blocks import is_large
from grader.grading.compare.together import Pack, packs
from grader.grading.oracle.case import Table
from grader.grading.oracle.evaluation import Evaluation
from grader.grading.oracle.perturbed_runs import Again

Key = tuple[Table, str]
"""The table and the name of a tensor."""


class Spreads:
    """The spreads of all tensors of a case.

    Runs are made for all of them, when the spread of one is first asked.
    """

    def __init__(
        self,
        eager: Mapping[Key, torch.Tensor],
        exact: Mapping[Key, torch.Tensor],
        again: Again,
        inputs: Sequence[object] = (),
        *,
        asserts: bool = True,
    ) -> None:
        """`exact` are the reference values. `again` makes other eager runs; `asserts` is as in `Traits`.

        Ties of `inputs` are judged unless a tensor is so large that its runs cannot be kept.
        """
        self._exact, self._again, self._asserts = exact, again, asserts
        self._runs_made = 0
        self._of_packs: list[torch.Tensor] = []
        """The spreads of packs of tensors, by the runs so far."""
        self._spreads: dict[Key, torch.Tensor] = {}
        self._runs = {key: [value] for key, value in eager.items()}
        """The eager run of each tensor, then those behind the spread, if ties are judged by them."""
        largest = max((value.numel() for value in exact.values()), default=0)
        kept = largest <= nonsmooth.MAX_ELEMENTS // nonsmooth.MOST_RUNS
        self._tied = {
            f"input[{index}]": value
            for index, value in enumerate(inputs if kept else ())
            if isinstance(value, torch.Tensor) and ties.has_ties(value)
        }

    def of(self, key: Key, runs: int = nonsmooth.MOST_RUNS) -> torch.Tensor:
        """The spread of a tensor over so many runs at least: the largest change of each element."""
        if self._runs_made < runs:
            self._make_runs(range(self._runs_made, runs))
            self._runs_made = runs
        return self._spreads[key]

    def ties_of(self, key: Key) -> ties.Ties | None:
        """The runs that show what ties of inputs decide in a tensor; None if no input has any."""
        if not self._tied:
            return None
        table, name = key
        return ties.Ties(partial(self._runs_of, key), self._tied.get(name) if table == "gradients" else None)

    def _runs_of(self, key: Key) -> Sequence[torch.Tensor]:
        self.of(key)
        return self._runs[key]

    def _make_runs(self, turns: range) -> None:
        keys = list(self._exact)
        groups = [[keys[at] for at in chosen] for chosen in packs(list(self._exact.values()))]
        exact = [Pack([self._exact[key] for key in group]) for group in groups]
        spreads = self._of_packs or [torch.zeros_like(pack.flat, dtype=torch.float64) for pack in exact]
        for run in chain(self._again(turns, nonsmooth.ULPS), self._the_other_way(turns)):
            # Another seed may need fewer gradients.
            values = {(table, name): value for table, name in keys if (value := getattr(run, table)[name]) is not None}
            for index, (group, pack) in enumerate(zip(groups, exact, strict=True)):
                of_run = Pack([values.get(key, self._exact[key]) for key in group], pack.device)
                spreads[index] = torch.maximum(spreads[index], nonsmooth.absolute_error(of_run.flat, pack.flat))
            if self._tied:
                for key, value in values.items():
                    self._runs[key].append(value)
        self._of_packs = spreads
        for group, pack, spread in zip(groups, exact, spreads, strict=True):
            self._spreads |= zip(group, pack.parts(spread), strict=True)

    def _the_other_way(self, turns: range) -> Iterator[Evaluation]:
        """A run in which whole numbers shrink and numbers in [-1, 1] grow, if outputs move there as in other runs.

        In those they do not, since a number just below 3 may be the index 2. Then all runs are on one side of an edge.
        A reference that asserts a range is not asked: a GPU's context does not survive that.
        """
        streamed = any(map(is_large, self._tied.values()))  # each tensor can be read once
        if not self._tied or streamed or self._asserts or turns.stop != nonsmooth.MOST_RUNS:
            return
        with contextlib.suppress(ReferenceRefused):
            (run,) = self._again(range(turns.stop, turns.stop + 1), nonsmooth.ULPS)
            if all(self._moves_alike(key, run.outputs[key[1]]) for key in self._exact if key[0] == "outputs"):
                yield run

    def _moves_alike(self, key: Key, run: torch.Tensor) -> bool:
        """Whether another run moves no element much more than the runs behind the spread move any."""
        moved, *usual = (
            float(nonsmooth.absolute_error(one, self._exact[key]).amax()) if one.numel() else 0.0
            for one in (run, *self._runs[key][1:])
        )
        return bool(run.isfinite().all()) and moved <= nonsmooth.FACTOR * max(usual, default=0.0)
