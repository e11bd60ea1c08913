"""Benchmarks pass code to child processes as text, which the type checker does not see."""

from benchmarks.build import build
from grader.catalog.shipped import shipped


def test_a_cold_build_our_way_is_timed():
    measured = build("ours", shipped("reference_solutions") / "cpu" / "conv2d_mul_leaky_relu_gelu.py")
    assert measured["builds"] == 1
    assert measured["wall"] > 0
    assert measured["cpu"] > 0
