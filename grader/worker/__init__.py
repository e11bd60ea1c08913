"""The program inside the sandbox. UNTRUSTED MEMORY: everything that it reports is a claim.

It runs a submission in its own process. The reference runs in the same program, so that both sides have the same
overheads. It imports `grader.protocol` and nothing else of the grader; the referee never imports it.
"""
