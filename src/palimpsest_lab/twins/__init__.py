"""Tier 4 of the tests of the privacy code: each method end to end on invented rows, and twins with a planted fault.

* `attacks`: canaries, invented texts with a fair coin each, black-box attacks that score them, and models made for a
  run
* `audit`: runs a method's own stages on invented rows, as they are and with faults
* `faults`: planted faults: test equipment that breaks the privacy code for the length of one run on invented rows
* `result`: the result of an end-to-end audit of one method, and its verdict
* `scenes`: for each method: invented data, the stages that run on them, and a black-box attack on their output
* `settings`: the smallest settings of each method that run its whole code: sections of an invented workspace's
  params.yaml
"""
