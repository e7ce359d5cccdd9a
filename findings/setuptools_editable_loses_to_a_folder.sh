#!/usr/bin/env bash
# setuptools 80.9.0: a package with a `src` folder that also maps another folder (`package-dir`) is installed editable
# by a finder that asks after every entry of sys.path. So from a folder that holds a folder of the package's name, such
# as the one above its clone, `import` finds that folder as a namespace package without content, and no error; a wheel
# of the same package is found. Seen: editable None, wheel .../site-packages/mine/__init__.py.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet setuptools==80.9.0
mkdir -p mine/src/mine mine/tools
touch mine/src/mine/__init__.py mine/tools/__init__.py
cat > mine/pyproject.toml <<'EOF'
[build-system]
requires = ["setuptools==80.9.0"]
build-backend = "setuptools.build_meta"
[project]
name = "mine"
version = "1"
[tool.setuptools]
packages = ["mine", "tools"]
package-dir = {mine = "src/mine", tools = "tools"}
EOF
env/bin/pip install --quiet --no-build-isolation --editable mine
editable=$(env/bin/python -c 'import mine; print(mine.__file__)')
env/bin/pip uninstall --quiet --yes mine
env/bin/pip install --quiet --no-build-isolation ./mine
wheel=$(env/bin/python -c 'import mine; print(mine.__file__)')
echo "editable $editable, wheel $wheel"
[ "$editable" = None ] && [[ "$wheel" = */site-packages/mine/__init__.py ]]
