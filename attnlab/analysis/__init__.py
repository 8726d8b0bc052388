"""What can be found out about a trace: each analysis a small result with a table and a picture.

They are asked for where they belong, as `trace.logit_lens()`. Each says what it can't tell.
"""
