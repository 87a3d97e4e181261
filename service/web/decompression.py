"""Gzip and deflate in bounded pieces: no body is ever held whole to be unpacked."""

from __future__ import annotations
