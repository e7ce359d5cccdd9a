"""params.yaml: its schema, the values that follow from what a person wrote, and the way back.

* `checks`: checks across the sections of params.yaml: the first of these problems refuses the file
* `file`: the part of params.yaml that is read before the rest is worked out, and keys that an installed package brings
* `load`: reading params.yaml
* `preset`: presets: entries of a key, its value and where it is from; and the presets that packages bring
* `reference`: the reference page of params.yaml, written from its schema
* `resolve`: from what a person wrote to what runs and the prompts in words; and back, from every value to what one
  would write
* `schema`: the schema of params.yaml: every setting of the project, described once, checked before any stage starts
* `sources`: the sources that params.yaml names as public, and which public models the stages that run need
* `sweep`: the points of a sweep: the name of each, and its settings in params.yaml
* `text`: settings as YAML, and entries put into the text of a params.yaml whose other lines stay as they are
* `written`: the public file that an author writes: what the author is told, what that costs, and who is named as its
  writer
"""
