"""The syntax tree of lashlang: nodes, types, and the paths that name the nodes."""
