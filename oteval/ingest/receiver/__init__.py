"""OTLP received: over HTTP (`http`) and gRPC (`grpc`), checked, redacted, spooled (`intake`).

A request is answered with success only once it is durable. Nothing is decoded into spans here:
what comes is looked through for what is wrong with it, and kept as it came.
"""
