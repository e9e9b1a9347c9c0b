"""A server for tests, made with the official SDK; it speaks over its standard streams, or over HTTP at a port."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("official")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.resource("notes://first")
def first() -> str:
    """The first note."""
    return "remember the milk"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
