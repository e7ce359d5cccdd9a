#!/usr/bin/env bash
# mkdocs 1.6.1: `build --strict --quiet` ends with status 0 over a link that leads nowhere; without `--quiet` with 1.
# Strict mode counts the warnings that a handler of the logger `mkdocs` sees, and `--quiet` lets that logger pass errors
# alone. So a check of a site that is to stay silent cannot fail. Seen: quiet 0, plain 1.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet mkdocs==1.6.1
mkdir docs
printf 'site_name: a site\nvalidation: {links: {not_found: warn}}\n' > mkdocs.yml
printf '# A page\n\n[A link](nowhere.md).\n' > docs/index.md
quiet=0; env/bin/mkdocs build --strict --quiet > quiet.txt 2>&1 || quiet=$?
plain=0; env/bin/mkdocs build --strict > plain.txt 2>&1 || plain=$?
echo "quiet $quiet, plain $plain"
[ "$quiet" = 0 ] && [ "$plain" = 1 ] && grep -q "nowhere.md" plain.txt
