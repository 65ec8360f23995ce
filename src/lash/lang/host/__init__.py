"""What a host offers to programs: modules, types, abilities and optional syntax."""
