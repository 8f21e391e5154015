def inner():
    raise KeyError("k")
def outer():
    try:
        inner()
    except KeyError as e:
        raise ValueError("outer") from e
outer()
