"""Keeps the worker alive."""
