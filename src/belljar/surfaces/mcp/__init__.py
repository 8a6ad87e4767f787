"""The MCP server, on stdio and over HTTP."""
