"""What a model's text means: content, reasoning and tool calls, found in pieces as they come."""
