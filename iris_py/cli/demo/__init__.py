"""`iris demo`: a cluster counts the tokens of a source tree while one of its members is killed."""
