"""Reading a picture back: what was drawn, from the artists and from the pixels."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex


def pixels(figure):
    """The figure as an array of bytes (row from the top, column, channel)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def colours(figure, axes, *places):
    """The colours drawn at places (x, y) of the data, as '#rrggbb'."""
    image = pixels(figure)
    spots = axes.transData.transform(places)
    return [to_hex(image[int(image.shape[0] - row), int(column)] / 255) for column, row in spots]


def image(axes):
    """The numbers of the heat map on these axes; masked where masked."""
    (drawn,) = axes.images
    return drawn.get_array()


def hatched(axes):
    """Which cells lie under hatching, from the corners of the polygons."""
    cells = np.zeros(image(axes).shape, dtype=bool)
    for collection in axes.collections:
        assert collection.get_hatch()
        for path in collection.get_paths():
            (left, top), (right, bottom) = path.vertices.min(0), path.vertices.max(0)
            cells[
                round(top + 0.5) : round(bottom + 0.5), round(left + 0.5) : round(right + 0.5)
            ] = True
    return cells


def words(axes):
    """The texts written in cells, by (row, column)."""
    return {
        (round(text.get_position()[1]), round(text.get_position()[0])): text.get_text()
        for text in axes.texts
    }


def rows(axes):
    """The labels down the left side that are shown."""
    return [label.get_text() for label in axes.get_yticklabels()]


def columns(axes):
    """The labels along the bottom that are shown."""
    return [label.get_text() for label in axes.get_xticklabels()]


def assert_nothing_cut(figure):
    """Everything drawn is inside the figure."""
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0
    assert drawn.x1 <= width
    assert drawn.y1 <= height


def assert_apart(figure, texts):
    """No two texts overlap."""
    pixels(figure)
    # A framed text is as large as its frame; and a text in space knows where it is only by its
    # frame.
    boxes = [
        (text.get_bbox_patch() or text).get_window_extent() for text in texts if text.get_text()
    ]
    assert len(boxes) > 1
    for i, one in enumerate(boxes):
        assert not one.count_overlaps(boxes[i + 1 :]), texts[i].get_text()
