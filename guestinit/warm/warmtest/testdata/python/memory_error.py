b = bytearray(1 << 60)
