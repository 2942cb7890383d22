"""A fuzzer of our own: good inputs of every reader, changed in many ways; none may end in anything but a sentence."""
