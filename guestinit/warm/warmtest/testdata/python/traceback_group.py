e = ExceptionGroup("many", [ValueError(1), TypeError("two")])
e.add_note("a note")
raise e
