"""The benchmark tasks. `gmiflow.tasks.catalog` lists them without importing torch."""
