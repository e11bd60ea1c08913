"""The text that goes back into a model's next prompt."""

from grader.verdict.feedback.text import feedback as feedback
