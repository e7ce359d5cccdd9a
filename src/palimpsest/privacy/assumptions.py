"""The assumptions that a run makes about its machine, by id. Receipts carry them and the statement lists them."""

BATCH_BITS = "batch-bits"
LOGIT_ROUNDING = "logit-rounding"
KNOWN = (BATCH_BITS, LOGIT_ROUNDING)  # report/assumptions.json has the sentence of each
