"""Learned drafters: the checkpoints people have, and the networks in them, in terms of an op set."""
