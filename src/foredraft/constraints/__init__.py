"""Structured output: JSON, a JSON schema, a regular expression or a grammar that an answer has to match."""
