"""HTTP exchanges of an agent: intercepted at the transports of its HTTP clients, and recorded.

`interception` hooks into the transports of httpx, httpx2, requests, urllib3 and aiohttp; the
adapters describe the requests of the last three as requests of httpx. `recorder` copies each
request and its response (`open_exchange`), removes secrets, and emits a log event in the context of
the span that made the request. A replay uses the same hooks to answer requests from a recording.
"""
