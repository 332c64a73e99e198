"""GMI backends: how a slice of a device is made, proven and released, one file per backend."""
