"""Judges the backward: vector-Jacobian products against float64, then experiments that find causes."""
