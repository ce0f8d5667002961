"""A chat agent whose tools are executed by an event agent, both behind one WebSocket; a page draws the queues.

Run it from the folder above: `python -m chat_and_event_agent`.
"""
