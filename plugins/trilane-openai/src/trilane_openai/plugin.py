"""The plugin `openai`."""
