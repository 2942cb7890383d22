"""The sparse kernel and the engines that make tokens with it."""
