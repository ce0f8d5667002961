"""OpenAI and compatible servers as models of Trilane agents."""
