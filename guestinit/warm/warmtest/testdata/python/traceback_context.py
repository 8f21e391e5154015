import json
try:
    json.loads("{")
except ValueError:
    undefined_name
