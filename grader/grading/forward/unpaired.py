"""Explains a wrong output by parameters of either side that have no counterpart on the other."""

from __future__ import annotations

from collections.abc import Sequence

from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parameter_matching import Matching
from grader.grading.messages import MAX_LISTED, diagnose, in_backticks
from grader.grading.oracle.case import Case
from grader.verdict.models import Diagnosis


def without_counterpart(candidate: Candidate, case: Case, wrong: str) -> Diagnosis | None:
    """The diagnosis for parameters that the candidate has not, or has under names and values of its own.

    `wrong` is the sentence on the output.
    """
    matching = candidate.matching(case)
    # A parameter that the reference's forward writes to is among both.
    missing = [name for name in matching.missing if name in case.wrt or name not in case.buffers]
    if matching.in_parts:
        whole = list(matching.in_parts)
        remedy = (
            f"keep {in_backticks(whole)} whole, as Model does, and split {'them' if whole[1:] else 'it'} in the forward"
        )
        return diagnose("parameters_unmatched", f"{_in_parts(matching)}; {wrong}", where=case.where, remedy=remedy)
    if matching.guessed or (missing and matching.extra):
        remedy = (
            "give them Model's names and shapes, or create them as Model does, so that equal seeds give equal values; "
            "keep each of Model's tensors whole"
        )
        what = f"{_unmatched(matching, missing)}; {wrong}"
        return diagnose("parameters_unmatched", what, where=case.where, remedy=remedy)
    if missing:
        what = f"ModelNew has no parameter for the reference's {in_backticks(missing)}; {wrong}"
        remedy = "keep names and shapes of Model's parameters"
        return diagnose("parameters_missing", what, where=case.where, remedy=remedy)
    return None


def with_own_parameters(candidate: Candidate, case: Case, found: Diagnosis) -> Diagnosis:
    """The diagnosis, with a note on parameters of ModelNew's own, such as one that Model ties."""
    own = candidate.unpaired_parameters(case)
    if found.code != "output_wrong" or not own:
        return found
    note = f"Model has no counterpart of ModelNew's {in_backticks(own)}, so that constructed values stay there"
    return found.model_copy(update={"message": f"{found.message}; {note}"})


def _in_parts(matching: Matching) -> str:
    """Which parameters of the reference's ModelNew keeps in several."""
    held = [f"the reference's `{name}` in {in_backticks(parts)}" for name, parts in matching.in_parts.items()]
    shown = ", ".join(held[:MAX_LISTED]) + " and others likewise" * (len(held) > MAX_LISTED)
    return f"ModelNew keeps {shown}: such parts are not paired with the whole"


def _unmatched(matching: Matching, missing: Sequence[str]) -> str:
    """Which parameters neither names nor values under equal seeds pair."""
    if missing and matching.extra:
        return (
            f"neither names nor values under equal seeds (as they are, reordered or joined) show which of ModelNew's "
            f"{in_backticks(matching.extra)} holds the reference's {in_backticks(missing)}"
        )
    pairs = [f"{matching.places[name].name} for {name}" for name in matching.guessed]
    what = (
        f"ModelNew's {in_backticks(pairs)} are paired by order alone: neither names nor values under equal seeds agree"
    )
    return f"{what}, and it has nothing for {in_backticks(missing)}" if missing else what
