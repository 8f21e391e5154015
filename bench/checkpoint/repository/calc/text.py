"""Words and lines."""
import collections
import re


def words(text):
    return re.findall(r"[a-z']+", text.lower())


def frequencies(text, most=3):
    return collections.Counter(words(text)).most_common(most)


def wrap(text, width):
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [line] if line else lines
