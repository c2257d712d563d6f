"""The OTLP receiver: requests over HTTP and gRPC, checked, redacted and spooled.

The path of a request, file by file:

- `http` and `grpc` read the body of a request; the HTTP server limits connections.
- `auth` checks the sender's token and its rate.
- `limits` bounds the bytes, parts and duration of requests.
- `intake` parses and checks the request, sets the token's resource attributes, and spools it.
- `redaction` removes secrets before anything is written to disk.
- `responses` encodes the answer. Success is sent only once the request is durable.
"""
