"""The MCP room: tools, resources and prompts of Model Context Protocol servers, as Cairn tools.

A server is a stranger: what it says of its tools is shown and never trusted, what it sends is
bounded, and what it answers is data. The official SDK (extra `mcp`) is loaded on first use.
"""

from cairn.mcp.asking import Elicitation
from cairn.mcp.options import ToolOptions
from cairn.mcp.server import McpServer

__all__ = ["Elicitation", "McpServer", "ToolOptions"]
