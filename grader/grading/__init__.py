"""TRUSTED judgement: one module a question. Evidence goes in, results and diagnoses come out."""
