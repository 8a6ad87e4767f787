"""What people and machines talk to. Surfaces parse, call and print; no rule, limit or decision lives here."""
