"""Which ranks are slow, and is it sure? Ranks × steps in, a judgement out; `judge` is where to begin."""
