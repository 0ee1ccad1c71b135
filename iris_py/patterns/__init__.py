"""The patterns of communication, without input or output: what each promises."""
