"""oteval scores what agents really did, from the OpenTelemetry traces they already emit."""

__version__ = "0.1.0"
