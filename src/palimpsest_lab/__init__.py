"""The lab: the tools of researchers, beside those of somebody with a file. The core never imports it.

It comes in only by entry points, as any other package does that brings methods, audits or commands:

* `methods`: `sentdp`, `custext` and `fewshot`, baselines of the papers; `shots` is the query of the last;
* `audits`, `stages`, `sections`: exhibits (separation, clipping, familiarity), the judge that answers behind
  demonstrations, attacks beside shadow models and behind prompts, ratings by people; `graph` lists the stages;
* `settings`: their keys of params.yaml;
* `presets`: the settings that the papers print;
* `datasets`: published data sets by their names;
* `reproduce`: the papers' tables as grids of cells;
* `cli`, `commands`: `palimpsest dataset`, `reproduce`, `rate` and `twins`;
* `twins`: each method's code end to end, beside versions with a planted fault. They examine code and no data.
"""
