"""The command `attnlab`: for people, and with `--json` for programs, as `cli.schema.json` says.

`command` parses arguments and prints.
"""
