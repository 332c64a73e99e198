"""`gmiflow bench train`: trainings beside those of a peer, in rows that are made once."""
