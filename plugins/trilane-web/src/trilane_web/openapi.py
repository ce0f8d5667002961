"""The OpenAPI document of the HTTP routes, made from the models that check their bodies."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from . import bodies
from .protocol import PROTOCOL

__all__ = ["openapi_document"]

#: method, path, summary, body, status of success, what it answers
_ROUTES: tuple[tuple[str, str, str, type[BaseModel] | None, int, str], ...] = (
    ("get", "/api/me", "Who you are", None, 200, "principal, agent and protocol"),
    ("get", "/api/sessions", "Your sessions, the one written to last first", None, 200, "a list of sessions"),
    ("get", "/api/sessions/{session}", "A session with its messages and open questions", None, 200, "the session"),
    ("patch", "/api/sessions/{session}", "Name a session", bodies.RenameBody, 200, "id and title"),
    ("delete", "/api/sessions/{session}", "Delete a session", None, 200, "id"),
    ("post", "/api/sessions/{session}/fork", "Copy the beginning", bodies.ForkBody, 201, "the new session's id"),
    ("post", "/api/sessions/{session}/resume", "Take a session up", bodies.ResumeBody, 201, "session and run"),
    ("post", "/api/sessions/{session}/say", "Steer, or say something for later", bodies.SayBody, 200, "done"),
    ("post", "/api/sessions/{session}/stop", "Stop the session's run", bodies.StopBody, 200, "done"),
    (
        "post",
        "/api/sessions/{session}/replies/{question}",
        "Answer a question; 409 if it was answered, 410 if it was withdrawn, 422 if the reply does not fit",
        bodies.ReplyBody,
        200,
        "the receipt",
    ),
    ("post", "/api/runs", "Start a run", bodies.StartBody, 201, "session and run"),
    (
        "get",
        "/api/runs/{run}/events",
        "The run's events as server-sent events; resumes after Last-Event-ID, says `gap` where it cannot",
        None,
        200,
        "text/event-stream",
    ),
    ("post", "/api/runs/{run}/ack", "Acknowledge events", bodies.AcknowledgeBody, 200, "whether it released the run"),
    ("get", "/api/protocol.json", "JSON Schema of the WebSocket protocol and of events", None, 200, "JSON Schema"),
)
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {}]


def openapi_document() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    models = [body for *_, body, _, _ in _ROUTES if body is not None]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for method, path, summary, body, status, answer in _ROUTES:
        paths.setdefault(path, {})[method] = _operation(method, path, summary, body, status, answer)
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "trilane-web", "version": str(PROTOCOL)},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Error": error},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": _SECURITY,
    }


def _operation(
    method: str, path: str, summary: str, body: type[BaseModel] | None, status: int, answer: str
) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in path.split("/")
        if part.startswith("{")
    ]
    kind = answer if answer == "text/event-stream" else "application/json"
    if kind == "text/event-stream":
        parameters.append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}})
        parameters.append({"name": "after", "in": "query", "schema": {"type": "integer"}})
    reference = {"$ref": "#/components/schemas/Error"}
    problem = {"description": "refused", "content": {"application/json": {"schema": reference}}}
    operation: dict[str, Any] = {
        "summary": summary,
        "operationId": f"{method}_{path.strip('/').replace('/', '_').replace('{', '').replace('}', '')}",
        "parameters": parameters,
        "responses": {str(status): {"description": answer, "content": {kind: {}}}, "4XX": problem},
    }
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation
