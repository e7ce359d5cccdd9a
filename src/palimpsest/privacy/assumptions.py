"""What a run had to assume about the machine that it ran on, by id: receipts carry them, the statement lists them."""

BATCH_BITS = "batch-bits"
LOGIT_ROUNDING = "logit-rounding"
KNOWN = (BATCH_BITS, LOGIT_ROUNDING)  # report/assumptions.json has the sentence of each
