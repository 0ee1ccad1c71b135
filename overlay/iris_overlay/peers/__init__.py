"""Other nodes: whether they live, links to them, and how they are found and dialled."""
