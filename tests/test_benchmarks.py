"""What benchmarks tell child processes to do is text, which no type checker reads."""

from benchmarks.build import build
from grader.catalog.shipped import shipped


def test_a_cold_build_our_way_is_timed():
    measured = build("ours", shipped("reference_solutions") / "cpu" / "conv2d_mul_leaky_relu_gelu.py")
    assert measured["builds"] == 1
    assert measured["wall"] > 0
    assert measured["cpu"] > 0
