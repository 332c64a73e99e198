"""How the processes of a run are started: on this machine, by `mpirun`, or by whatever a cluster has."""
