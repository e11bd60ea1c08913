# CUDA's compiler, bubblewrap and the grader. docs/how-to/install.md says how to build and run it, and which options of the
# engine the sandbox needs.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

COPY LICENSE README.md pyproject.toml constraints.txt /source/
COPY grader /source/grader
COPY db /source/db
COPY problems /source/problems
COPY reference_solutions /source/reference_solutions
COPY submissions /source/submissions
COPY starter /source/starter

RUN python3 -m venv /opt/grader \
    && /opt/grader/bin/pip install --no-cache-dir --constraint /source/constraints.txt '/source[serve,parquet]' \
    && rm -rf /source

ENV PATH=/opt/grader/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
ENTRYPOINT ["grader"]
CMD ["doctor"]
