"""Requests, at the caller and at the member."""
