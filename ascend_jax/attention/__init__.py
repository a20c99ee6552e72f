"""The numerics: what attention computes, block by block, and the operators that users know."""
