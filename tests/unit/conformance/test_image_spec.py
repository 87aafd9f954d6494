from hps.conformance import image_spec


def test_rectangles_are_painted_in_order_on_white() -> None:
    pixels = image_spec.image({"size": [3, 2], "rects": [[0, 0, 2, 1, 5], [1, 0, 3, 1, 7]]})
    assert pixels.shape == (2, 3, 3)
    assert pixels[:, :, 0].tolist() == [[5, 7, 7], [255, 255, 255]]
    assert (pixels == pixels[:, :, :1]).all()


def test_hash_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    pixels = image_spec.image({"size": [4, 4], "fill": 1, "rects": [[0, 0, 2, 2, 9]]})
    assert image_spec.image_hash(pixels[:, 1:3]) == image_spec.image_hash(pixels[:, 1:3].copy())
    assert len(image_spec.image_hash(pixels)) == 16
