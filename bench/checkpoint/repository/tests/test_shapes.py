import math
import unittest

from calc import shapes


class Shapes(unittest.TestCase):
    def test_circle(self):
        self.assertAlmostEqual(shapes.circle(2), 4 * math.pi)

    def test_negative(self):
        with self.assertRaises(ValueError):
            shapes.circle(-1)

    def test_square(self):
        self.assertEqual(shapes.polygon([(0, 0), (2, 0), (2, 2), (0, 2)]), 4)
