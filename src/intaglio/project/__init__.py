"""One file for a project, `intaglio.toml`: models, the packages to make of them, budgets, firmware of several networks."""
