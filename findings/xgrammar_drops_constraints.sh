#!/usr/bin/env bash
# xgrammar 0.2.9 compiles JSON schemas whose constraints it does not keep, with no error: `uniqueItems`, `not` and
# `contains` silently, two schemas under `allOf` with a warning on stderr. Texts that its grammar takes break the schema,
# and of `contains` those that keep it are refused. It also installs triton, 286 MB, on Linux. llguidance 1.9.1 refuses
# `uniqueItems`, `not` and `contains` by name, keeps `allOf`, and installs nothing else.
# Seen: xgrammar takes [1, 1], "x" and "no number", and not [0, 1]; llguidance names three keys.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0 transformers==5.23.0 numpy==2.4.6 pydantic==2.14.3 llguidance==1.9.1 jsonschema==4.26.0
env/bin/pip install --quiet --no-deps xgrammar==0.2.9 apache-tvm-ffi==0.1.15.post2 typing-extensions==4.16.0
grep -q '^Requires-Dist: triton; platform_system == "Linux"' env/lib/python3*/site-packages/xgrammar-0.2.9.dist-info/METADATA
! grep -q '^Requires-Dist' env/lib/python3*/site-packages/llguidance-1.9.1.dist-info/METADATA
cat > compare.py <<'PY'
import json

import jsonschema
import xgrammar
from llguidance import LLMatcher
from xgrammar.testing import _is_grammar_accept_string as takes

CASES = {
    "uniqueItems": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 1], False),
    "not": ({"type": "string", "not": {"const": "x"}}, "x", False),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, "no number", False),
    "contains": ({"type": "array", "contains": {"const": 1}}, [0, 1], True),
}
for name, (schema, value, valid) in CASES.items():
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    assert jsonschema.Draft202012Validator(whole).is_valid({"a": value}) is valid
    taken = takes(xgrammar.Grammar.from_json_schema(json.dumps(whole)), json.dumps({"a": value}))
    told = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(whole))
    print(name, "valid", valid, "taken by xgrammar", taken, "llguidance", told.strip() or "keeps it")
    assert taken is not valid
    assert told.strip() == ("" if name == "allOf" else f'Unimplemented keys: ["{name}"]')
PY
env/bin/python compare.py
