#!/bin/sh
# Predict a large file as a Slurm array job, one shard per task, and join the shards.
#
#   sbatch examples/bulk/slurm_array.sh BUNDLE INPUT OUTPUT
#   sbatch --dependency=afterok:JOBID --wrap "regard join OUTPUT"
#
# A task that is requeued or submitted again resumes where it was; a complete one ends at once.
#SBATCH --job-name=regard-predict
#SBATCH --array=1-64
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
exec regard predict "$1" --input "$2" --output "$3" \
    --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
