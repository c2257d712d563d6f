"""What every room stands on: errors, JSON, text, files, processes, redaction, and HTTP.

Nothing here knows traces, runs or scores. In: bytes, text and Python values. Out: the same, read,
checked, guarded or sent. It imports nothing of oteval but itself.
"""
