#!/usr/bin/env bash
# deploy/ansible: ansible-lint with the strictest profile and nothing left out, and the syntax of every playbook.
set -euo pipefail
PATH=$PWD/.venv/bin:$PATH
cd "$(dirname "$0")/../deploy/ansible"
export ANSIBLE_LINT_NODEPS=1 NO_COLOR=1
ansible-lint --offline --profile production -q
for playbook in *.yml; do
    [ "$playbook" != galaxy.yml ] || continue
    ansible-playbook --syntax-check -i inventory/example.yml "$playbook" >/dev/null
done
