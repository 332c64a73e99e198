"""Communication between GMIs: collectives and experience channels."""
