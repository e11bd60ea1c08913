"""Changes of a pass: functions replaced, results rounded, noise, or one mistake."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grader.protocol.base import Many, Message, Name, Total

__all__ = ["Change", "Jitter", "PossibleSlip", "Rounding", "SavedValues", "Slip"]

Substitute = Literal["none", "gelu_tanh", "gelu_erf", "no_detach", "no_no_grad", "tf32", "spelled_out"]
"""What is replaced: the form of GELU, detach(), no_grad(), the operands of convolutions by rounded ones, or norms and
attention by their steps."""


class PossibleSlip(Message):
    """A mistake that can be made in a pass."""

    what: Name
    """Follows "the reference with"."""
    times: Total
    """Calls in which it can be made."""
    lines: Annotated[tuple[Total, ...], Many] = ()
    """The lines of the reference's source that make these calls, one for each place in it."""


class Rounding(Message):
    """Rounds what matrix products and convolutions multiply, or the results of one kind of operator."""

    bits: Annotated[int, Field(ge=1, le=53)]
    """Significant bits that are left."""
    cut: bool = False
    """Whether the other bits are cut off instead of rounded, as tensor cores do."""
    turn: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Whose results: the kind of operator, in the order in which kinds first run. None for operands of products."""


class Slip(Message):
    """One mistake: in a forward, another option, dimension or function; in a backward, something left out.

    With `detached`, no gradient flows through one of several operands of a function of the forward. With `turned`, an
    operand of the backward is transposed, flipped or what an operator takes in place of its result. With `operands`, a
    tensor of the forward stands in the backward for another. With `recomputed`, the forward that is differentiated is
    another one, with its values, as that of a backward which repeats it.
    """

    within: Literal["forward", "detached", "backward", "turned", "operands", "recomputed"]
    what: Name = ""
    """Which one, in the words of a `PossibleSlip`; none if it is empty."""
    turn: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    """In which of the calls in which it can be made; None for all of them."""
    place: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    """In the calls from which of the places in the source; None for all of them."""


class Jitter(Message):
    """Adds noise to what operators choose elements by, and draws what a conversion leaves open."""

    size: Annotated[float, Field(ge=0, le=1)]
    """Relative to an element and to the median of all."""
    turn: Annotated[int, Field(ge=0, le=4096)]
    """Which noise; an odd turn has that of the turn before with the other sign, so that it orders a tie otherwise."""


class SavedValues(Message):
    """Has the backward compute with copies of what the forward saves, as they were when it did so."""

    keeps: Literal["copies"]


Change = Rounding | Slip | Jitter | SavedValues
"""How a pass differs from the model's own."""
