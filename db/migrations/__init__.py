"""The schema's versions, and the way from each to the next."""
