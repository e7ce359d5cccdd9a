"""Methods that make rows, each in a folder of its own: its declaration, its plan (no torch), and its fit.

* `public_only`: the baseline at epsilon 0: only public rows
* `registry`: all methods: those declared here, each in its own folder, and those that installed packages bring
"""
