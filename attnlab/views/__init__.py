"""What draws: text with real numbers, notebook views, pictures, frames with named axes.

Nothing that computes imports these rooms; the methods of results do when they are called.
"""
