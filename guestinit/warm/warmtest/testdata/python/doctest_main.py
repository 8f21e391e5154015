def add(a, b):
    """
    >>> add(1, 2)
    3
    >>> add(1, 1)
    3
    """
    return a + b
if __name__ == "__main__":
    import doctest
    doctest.testmod()
