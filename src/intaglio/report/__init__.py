"""What a person sees of a package: one page, a table of differences, budgets. Everything is read from the package, and measured."""
