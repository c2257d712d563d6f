"""Clients that send to HTTP and gRPC endpoints: OTLP requests, and the APIs of trace backends."""
