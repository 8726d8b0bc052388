"""What a trace looks like: pictures of what the rest computes. Nothing that computes needs it."""
