"""Physics engines and simulator adapters."""
