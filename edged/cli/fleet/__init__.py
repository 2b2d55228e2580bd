"""`edgectl fleet`: many boxes at once, through Ansible."""
