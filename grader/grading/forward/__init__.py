"""Judges the forward: outputs against float64, then probes of what they depend on."""

from grader.grading.forward import output_dependence as output_dependence
from grader.grading.forward import repeated_forwards as repeated_forwards
from grader.grading.forward import updates as updates
