"""`iris demo`: a cluster counts a source tree while one of its members is killed."""
