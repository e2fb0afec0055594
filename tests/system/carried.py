"""Objects of classes that a program brought along."""

from PIL import ImageFilter


def made(name, call, **attributes):
    """An object of a class that the program brought along."""
    entry = type(name, (), {"__call__": call})()
    vars(entry).update(attributes)
    return entry


def blurred(image, radius):
    return image.filter(ImageFilter.GaussianBlur(radius=radius))
