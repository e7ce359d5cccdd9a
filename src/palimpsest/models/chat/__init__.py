"""Language models that follow instructions: at an endpoint, or on this machine.

* `base`: requests to language models that follow instructions, their answers, and the file of one run with both
* `endpoint`: a model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, `transformers serve`, or a vendor's
* `kept`: stores answers, so that a stopped run continues where it was and pays for nothing twice
* `local`: a model with a chat template on this machine
* `settings`: settings of authors that are asked in words, local or behind an endpoint
"""
