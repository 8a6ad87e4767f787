"""The command line, the MCP server and the terminal. Surfaces parse, call and print."""
