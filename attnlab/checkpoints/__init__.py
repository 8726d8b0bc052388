"""GPT-2's parameters from safetensors files, from arrays in memory, and from the hub.

`checkpoint` reads a directory, and `arrays` reads a model in memory. `hub` finds a model by name
and downloads missing files. No other package uses the tensor names in files.
"""
