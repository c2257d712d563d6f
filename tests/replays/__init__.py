"""Tests of recordings and their replays."""
