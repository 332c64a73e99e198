"""Pictures of a checked workflow: Mermaid, DOT and SVG."""
