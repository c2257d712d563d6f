"""Scripts that make files of the repository."""
