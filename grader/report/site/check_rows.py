"""Makes the rows of a table of checked tensors as text.

A verdict has dozens of them, and a template takes several times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from markupsafe import Markup

from grader.report.console import clean
from grader.report.site.formats import badge, figure, prose, shape, yes
from grader.verdict.stages import TensorCheck


def check_rows(tensors: Iterable[TensorCheck], explained: bool) -> Markup:
    """One row per tensor: its errors and its worst element, and its message if `explained`."""
    return Markup("\n".join(_row(one, explained) for one in tensors))


def _row(one: TensorCheck, explained: bool) -> str:
    size = f'<br><span class="note">{shape(one.shape)}</span>' if one.shape is not None else ""
    why = f'<td class="why">{prose(one.message or "")}</td>' if explained else ""
    return (
        f'<tr><th scope="row"><code>{escape(clean(one.name))}</code>{size}</th><td>{badge(one.status)}</td>'
        f'<td class="num">{figure(one.rel_rms_error)}</td><td class="num">{figure(one.baseline_rel_rms_error)}</td>'
        f'<td>{shape(one.worst_index)}</td><td class="num">{figure(one.worst_candidate, 6)}</td>'
        f'<td class="num">{figure(one.worst_reference, 6)}</td>'
        f"<td>{yes(one.passes_1e_4)}, {yes(one.passes_1e_2)}</td>{why}</tr>"
    )
