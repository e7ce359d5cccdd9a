#!/usr/bin/env bash
# pyarrow 21.0.0 imports pandas by itself at the first table that is made of Python values, wherever pandas is installed,
# although no value of pandas is near: a process that only writes Parquet pays for that import.
# Seen: before False, after True.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet pyarrow==21.0.0 pandas==2.3.3
told=$(env/bin/python -c '
import sys, pyarrow
before = "pandas" in sys.modules
pyarrow.table({"text": ["a", "b"]})
print("before", before, "after", "pandas" in sys.modules)')
echo "$told"
[ "$told" = "before False after True" ]
