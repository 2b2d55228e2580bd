#!/usr/bin/env bash
# Runs every script of bench/ in order of name and stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
found=0
for script in bench/run_*.py; do
    found=1
    printf '== %s\n' "$script"
    .venv/bin/python "$script"
done
if [ "$found" = 0 ]; then echo "bench: bench/ has nothing yet"; fi
