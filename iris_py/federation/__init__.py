"""Uses of other clouds: names, rules, and the bytes that cross. Without input or output."""
