"""Hardware in the loop: the model ranks, a person or a program measures, the model learns from what was measured."""
