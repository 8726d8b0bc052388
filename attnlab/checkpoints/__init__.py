"""GPT-2's parameters from safetensors files, from arrays in memory, from the hub.

Only here the names that tensors have in files are known. `checkpoint` reads a directory, `arrays` a
model in memory; `hub` finds a directory by its name, and downloads what is not there. `rules` are
the tables by which a page opens a directory itself.
"""
