"""Memory of host and devices: allocations by address, copies, stream-ordered pools, the caching allocator of PyTorch."""
