#!/bin/sh
# Slurm's Prolog (slurm.conf), as root on each node of a job: the node's batchd is there before the job's first task.
# Not needed where each user's first script starts a daemon in the job's own control group, which is the default.
systemctl start batchd.socket
