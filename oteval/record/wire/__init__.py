"""HTTP exchanges of an agent: intercepted at the transports of its HTTP clients, and recorded.

`interception` hooks into the transports of httpx, httpx2 and requests. The recorder turns each
request and its response into an `Exchange`, removes secrets, and emits it as a log event in the
context of the span that made the request. A replay uses the same hooks to answer requests from a
recording.
"""
