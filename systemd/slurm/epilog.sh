#!/bin/sh
# Slurm's Epilog, as root on each node after a job: ends daemons that the job's user has started and that no other job of the user
# needs. Slurm itself ends what is in the job's control group; this is for sites without proctrack/cgroup.
[ -n "${SLURM_JOB_UID:-}" ] && [ "$SLURM_JOB_UID" -ge 1000 ] || exit 0
squeue --noheader --node="${SLURMD_NODENAME:-$(hostname -s)}" --user="$SLURM_JOB_UID" --states=running --format=%A |
	grep --quiet --invert-match --line-regexp "${SLURM_JOB_ID:-0}" && exit 0
# The --on-demand daemons only, never one that the user has started by hand.
pkill --uid "$SLURM_JOB_UID" --full -- '/batchd --socket [^ ]* --on-demand'
exit 0
