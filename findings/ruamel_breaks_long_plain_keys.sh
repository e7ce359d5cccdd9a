#!/usr/bin/env bash
# ruamel.yaml from 0.18.13 on: at its default width a plain mapping key of some hundred characters with blanks is broken
# over two lines, and the file it wrote cannot be read back. 0.18.12 leaves the key on its line. DVC 3 writes dvc.lock
# through it, so a long label in a parameter makes a lock that DVC refuses. A wide `width` avoids it.
# Seen: 0.18.12 same, 0.18.13 ScannerError, 0.18.13 wide same.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
cat > try.py <<'P'
import io, sys
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
yaml, text = YAML(), io.StringIO()
if "wide" in sys.argv:
    yaml.width = 4096
body = {"labels": {" ".join(["asks", "about", "a", "delivery"] * 5): "a description"}}
yaml.dump(body, text)
try:
    print("same" if YAML(typ="safe").load(text.getvalue()) == body else "another value")
except YAMLError as error:
    print(type(error).__name__)
P
python3 -m venv env
env/bin/pip install --quiet ruamel.yaml==0.18.12
old=$(env/bin/python try.py)
env/bin/pip install --quiet ruamel.yaml==0.18.13
new=$(env/bin/python try.py); wide=$(env/bin/python try.py wide)
echo "0.18.12 $old, 0.18.13 $new, 0.18.13 wide $wide"
[ "$old" = same ] && [ "$new" = ScannerError ] && [ "$wide" = same ]
