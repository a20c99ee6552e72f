"""The unified operator ``flash_attn`` of the 950: one call for prefill, decode, packed sequences and paged keys and values."""
