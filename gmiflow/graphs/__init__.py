"""Pictures: of a checked workflow (Mermaid, DOT, SVG), of the devices of a plan, of throughput over sizes."""
