"""Collective communication between simulated devices, as HCCL does it: right numbers, and time by HCCL's own formulas."""
