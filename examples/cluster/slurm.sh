#!/bin/bash
#SBATCH --job-name=grader
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=64
# sbatch examples/cluster/slurm.sh submissions/ : Ray on every node of the job, the driver on the first.
# Ray runs the same command on every node by `ray symmetric-run`: the first node starts the head and the driver.
set -euo pipefail
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" -- \
    grader grade "$@" --db grader.db --ray "$head:6379"
