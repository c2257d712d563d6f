"""The ground of all rooms: errors, JSON, text, files, processes, redaction and HTTP.

Nothing here knows traces, runs or scores. In: bytes, text and Python values. Out: the same, read,
checked, guarded or sent. It imports nothing of oteval except itself. Other rooms may import each of
its modules. From any other room, they import only the names in its `__init__`.
"""
