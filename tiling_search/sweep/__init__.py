"""Many workloads on many chips: every pair is searched, on all local devices, and kept in a store as soon as it is done."""
