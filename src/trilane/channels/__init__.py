"""What carries events out of a run and answers into it. Knows nothing of agents; one file for each channel."""

from __future__ import annotations

from .event_queue import AgentEventQueue, QueueClosed
from .queues import InputItem, LaneQueue, Reply, RuntimeQueues
from .sink import EventSink

__all__ = ["AgentEventQueue", "EventSink", "InputItem", "LaneQueue", "QueueClosed", "Reply", "RuntimeQueues"]
