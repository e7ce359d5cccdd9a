"""The page that `init` puts into a workspace, for people who open the folder."""

README = """\
# A workspace of palimpsest

It turns a private data set into synthetic rows, and audits them. The private file stays where it was.

| here | what it is | zone | may it be shared? |
|---|---|---|---|
| `params.yaml` | what you decided; `params.resolved.yaml`, `dvc.yaml` follow from it | public | if its paths may be |
| `data/private/` | your records in their splits, and what was measured on them | private | never |
| `data/public/`, `data/inputs/` | the public text, and digests of code and models | public | yes |
| `data/synthetic/` | the synthetic rows of each variant, as `.jsonl` and `.parquet` | dp | through `release/` alone |
| `data/`, all else | what stages keep between runs | private | never |
| `models/` | models that were fitted or copied here | private | never |
| `reports/card.html` | one page about the releases | public | yes |
| `reports/`, all else | the audit page, samples, the table, what each audit measured, receipts | private | never |
| `release/` | signed rows, card and statement | public | yes: hand on a copy of it |
| `dvc.lock`, `.dvc/`, `.palimpsest/` | what ran on which files, and a cache | private | never |

Zones: *private* holds records, or something measured on them. *dp* follows from answers that the privacy ledger paid
for; rows of a reference, at epsilon infinity, lie beside them and are private. *public* has nobody behind it.

The ledger, which remembers what was spent, lies outside this folder. Deleting the folder gives nothing back.

## How to go on

In this folder:

    palimpsest sample       # some of the synthetic rows
    palimpsest samples      # a page of them beside private ones: private
    palimpsest compare      # the variants side by side
    palimpsest report       # the table, and where the pages are
    palimpsest plan         # what a run would do and cost, after a change of params.yaml
    palimpsest run          # do it; what is up to date costs nothing
    palimpsest params --keys  # every setting

To try another epsilon or method, add a variant to `params.yaml`; its comments have examples. To share rows, make a key
with `palimpsest keys new`, name the variants under `release`, and run `palimpsest run release`.
"""
