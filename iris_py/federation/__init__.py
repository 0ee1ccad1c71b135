"""The protocol between clouds, without input or output: names, rules, and the bytes that cross between gateways."""
