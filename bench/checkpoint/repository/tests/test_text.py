import unittest

from calc import text


class Text(unittest.TestCase):
    def test_frequencies(self):
        self.assertEqual(text.frequencies("a b a c a b", 2), [("a", 3), ("b", 2)])

    def test_wrap(self):
        self.assertEqual(text.wrap("one two three four", 9), ["one two", "three", "four"])
