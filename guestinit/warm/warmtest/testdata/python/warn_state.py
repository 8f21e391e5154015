import warnings
print(warnings.filters, warnings.onceregistry)
warnings.warn("deprecated here", DeprecationWarning)
warnings.warn("twice")
for _ in range(2):
    warnings.warn("once per line")
import imp_missing
