"""Equals BATCHD_VERSION in batchd.h; a test compares them."""

VERSION = "0.1.0"
