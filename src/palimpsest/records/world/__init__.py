"""The invented world of the demo.

* `facts`: the answer key of the invented world: which facts a text states, and which secrets it gives away
* `shipped`: files of invented worlds, packed beside this module: `demo.zip` ships, and `tools/` of a clone makes
  others
"""
