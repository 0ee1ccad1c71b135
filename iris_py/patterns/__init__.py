"""What each pattern of communication promises, without input or output."""
