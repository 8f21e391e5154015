# -*- coding: latin-1 -*-
print("éÿ")
