"""Tests of the model APIs, with the real clients of each API."""
