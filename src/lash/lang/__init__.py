"""lashlang: a small language for programs that models write, from text to a verified artifact."""
