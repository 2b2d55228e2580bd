#!/bin/sh
# What is going on? Waits until the daemon is ready, gives it what comes on stdin, prints the answer.
#
#   journalctl -p warning -n 20 | ./ask.sh "What is wrong here? One sentence."
#
# Without this file:  journalctl -p warning -n 20 | edgectl ask --system "What is wrong here? One sentence."
# Exit status: that of edgectl (0 answered, 1 refused or not ready, 3 nothing answered; see docs/edgectl.md).
set -eu
edgectl health --wait "${WAIT:-60}" >&2
exec edgectl ask --system "${1:-Sum this up in one sentence.}" --max-tokens 100 --deadline 120
