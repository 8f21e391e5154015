# -*- coding: no-such-codec -*-
print("x")
