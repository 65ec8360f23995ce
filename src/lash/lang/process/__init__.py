"""Programs on the runtime: the engine of processes, cells of a turn, tools as operations, triggers."""
