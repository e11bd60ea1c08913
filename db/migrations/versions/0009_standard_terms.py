"""Verdicts' documents in standard terms: the baseline error, the roofline bound."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_RENAMED = {
    '"yardstick_rel_rms_error":': '"baseline_rel_rms_error":',
    '"code":"above_speed_of_light"': '"code":"above_roofline_bound"',
}
"""Within a text of a document, such as a message, quotes are escaped, so that only names and codes match."""


def upgrade() -> None:
    rename = sa.text("update verdicts set document = replace(document, :old, :new) where instr(document, :old)")
    for old, new in _RENAMED.items():
        op.get_bind().execute(rename, {"old": old, "new": new})
