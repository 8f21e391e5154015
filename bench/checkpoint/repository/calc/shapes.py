"""Areas and lengths."""
import math


def circle(radius):
    if radius < 0:
        raise ValueError("radius is negative")
    return math.pi * radius ** 2


def polygon(points):
    total = 0
    for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1]):
        total += x1 * y2 - x2 * y1
    return abs(total) / 2
