"""The programs of the graph's nodes, each started as `python -P -m stages.NAME`, and their shared modules.

* `anonymity_audit`: measures singling out, linkability and inference, from the released rows of one variant
* `audited`: shared by audits: the rows they read, and a result or the reason for having none
* `baseline_eval`: scores the rows that every variant is compared with: real rows, public rows, and rows of only the
  public model
* `classifier_eval`: scores a classifier trained with DP-SGD on the real test rows, to show what private rows teach
  without any text
* `common`: starts every stage, ends it with its process, and reports failures without a word of private text
* `decoder_pretrain`: trains an embedding decoder on public sentences: it writes the text of a sentence embedding
* `discriminator`: fits a discriminator on a fitted language model: a stage that spends budget
* `downstream_eval`: trains classifiers, or a language model, on synthetic rows and scores them on the real test rows
* `dp_train`: fits one language model of `dp_lm` to the private rows: a stage that spends budget
* `encode_public`: embeds the public texts and the labels' public descriptions; other stages read the file
* `fields_audit`: measures how fields beside texts go together, and what a model of texts and fields learns
* `fidelity_audit`: measures how like the private texts the synthetic rows are, as sets, each value beside its floor:
  private zone
* `filters`: the filters that a variant names: free post-processing of written texts, measured by the public model
* `fit`: makes the rows of one variant: the stage that spends for every method with rows
* `inputs`: writes down the inputs of the other stages that no stage makes: the code of each, and the public models
* `membership`: shared parts of every membership attack on a variant: the guessed records, the control, and the tested
  claim
* `memorisation_audit`: counts what the synthetic rows repeat of single private records, beside what they share with
  records no one read
* `mia`: membership inference against the model of one variant
* `next_token_base`: trains, on public text only, the language model that later learns on rows and reads real texts
* `ngram_audit`: counts the n-grams that synthetic rows share with rows that trained, with rows that did not, and with
  public text
* `packaged`: runs a stage that a package brings, warm as ours: `python -P -m stages.packaged MODULE [ARGUMENT ...]`
* `pplm_generate`: writes the synthetic rows of one variant: post-processing of a fitted model, free
* `preprocess`: reads the private and the public file, draws the audit subset, and writes the splits
* `pretrain`: makes the public language model: trained on public text, or fetched as params.yaml says and left as it
  is
* `public`: reads public texts and files, once it is checked that these are not the workspace's own private ones
* `public_eval`: scores the rows that may leave on a test file that was declared public: the only scores that a card
  shows
* `public_lm`: writes the epsilon 0 row of the public language model: its texts behind public prompts, with no private
  row read
* `public_only`: writes the epsilon 0 row: public texts, for each label where there are labels, chosen without private
  rows
* `release`: puts together and signs what may leave: rows, cards, statement, measurements, ledger extract, provenance
* `report`: writes the audit page, the public card, the privacy statement, the final table, and the same figures as
  DVC plots
* `resuming`: what a stopped or repeated fit goes on with: kept answers, models that were paid for, their receipts
* `samples`: writes the sample browser, a page of the private zone, from what finished stages left
* `spenders`: lists everything that asks private rows something, and computes what each would ask and cost; reads no
  row
* `spending`: shared parts of every stage that spends: the identity of a run, the rows behind the meter, and its
  record
* `structure_audit`: counts how many synthetic rows of task json are JSON and conform to the public schema
* `teach_similar`: teaches a copy of the public language model, on public pairs, to continue with a text like the one
  it read
* `text_mia`: membership inference from only the released rows of one variant, whatever method wrote them
* `together`: starts the processes of one machine that train together, and finds which of them was lost
* `tools`: the public artifacts that methods are built with: their places, and their encoder with its memory
* `vouching`: the only way to a public model or text file: its path, once it is checked that it is not the workspace's
  own
* `warm`: starts stages warm: one process reads the large libraries once, and each stage runs in a fork of it
* `world`: unpacks the invented world of the embedded data set
* `write_public`: lets an author write the public file from public words alone, where there is none
* `zero_shot`: lets an author write, shown no record, the texts that the evolution of embeddings begins with
"""

import os
import sys

# True only while Python looks for the module that it will run: nothing is imported yet.
if os.environ.get("PALIMPSEST_WARM") and sys.argv[:1] == ["-m"] and sys.orig_argv[1:3] == ["-P", "-m"]:
    from stages.warm import hand_over

    hand_over()
