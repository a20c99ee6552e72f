"""What a next chip should have: latencies of many workloads, each with its best tiling, as a function of the chip's numbers."""
