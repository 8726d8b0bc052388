"""What is looked at: explanations, notebook views, pictures, frames, and the page for a browser.

Nothing that computes needs these rooms; the methods of results import them when they are called.
"""
