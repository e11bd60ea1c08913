"""The program inside the sandbox. UNTRUSTED MEMORY: it runs a submission, so nothing that it says is more than a claim.

The reference runs in the same program, so that both sides carry the same overheads. Of ours it imports
`grader.protocol` alone; the referee never imports it.
"""
