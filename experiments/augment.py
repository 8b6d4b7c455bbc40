"""How the paper's recipes vary images: crop, flip and turn for CIFAR; crop, flip and AutoAugment for ImageNet.

All draws are torch's, so that the workers of a loader, which torch seeds, do not repeat each other.
"""

from collections.abc import Callable

import torch
from PIL import Image, ImageEnhance, ImageOps

_GREY = (128, 128, 128)


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand(()))


def _one_in_two() -> bool:
    return float(torch.rand(())) < 0.5


def for_cifar(image: Image.Image) -> Image.Image:
    """A crop of 32 × 32 out of a frame of 4 around it, a flip, a turn by up to 15°."""
    framed = ImageOps.expand(image, 4)
    left, top = (int(torch.randint(0, 9, ())) for _ in range(2))
    image = framed.crop((left, top, left + 32, top + 32))
    if _one_in_two():
        image = ImageOps.mirror(image)
    return image.rotate(_uniform(-15, 15), Image.Resampling.BILINEAR)


def for_imagenet(image: Image.Image) -> Image.Image:
    """A random part as 224 × 224, a flip, and a policy of AutoAugment."""
    image = _random_part(image).resize((224, 224), Image.Resampling.BILINEAR)
    if _one_in_two():
        image = ImageOps.mirror(image)
    return auto_augment(image)


def _random_part(image: Image.Image) -> Image.Image:
    """Of 8 to 100 % of the area, and of an aspect from 3:4 to 4:3."""
    width, height = image.size
    for _ in range(10):
        area = width * height * _uniform(0.08, 1)
        aspect = float(torch.exp(torch.tensor(_uniform(-0.2877, 0.2877))))  # the logarithm of 4/3
        w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, top = int(_uniform(0, width - w)), int(_uniform(0, height - h))
            return image.crop((left, top, left + w, top + h))
    return middle(image)


def middle(image: Image.Image) -> Image.Image:
    """The largest square in the middle."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def for_test(side: int) -> Callable[[Image.Image], Image.Image]:
    """The middle of an image, without chance."""

    def prepare(image: Image.Image) -> Image.Image:
        if image.size == (side, side):
            return image
        whole = side * 256 // 224
        image = middle(image).resize((whole, whole), Image.Resampling.BILINEAR)
        edge = (whole - side) // 2
        return image.crop((edge, edge, edge + side, edge + side))

    return prepare


def _signed(value: float) -> float:
    return value if _one_in_two() else -value


def _enhance(kind: type[ImageEnhance.Color | ImageEnhance.Contrast | ImageEnhance.Sharpness]) -> "Operation":
    return lambda image, level: kind(image).enhance(1 + _signed(0.1 * level))


Operation = Callable[[Image.Image, int], Image.Image]
OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, level: ImageOps.posterize(image, 8 - round(level / 9 * 4)),
    "rotate": lambda image, level: image.rotate(_signed(level / 9 * 30), fillcolor=_GREY),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear": lambda image, level: image.transform(
        image.size, Image.Transform.AFFINE, (1, _signed(level / 9 * 0.3), 0, 0, 1, 0), fillcolor=_GREY
    ),
    "solarize": lambda image, level: ImageOps.solarize(image, 256 - round(level / 9 * 256)),
}
"""By their names in the policies; levels go from 0 to 9."""

Step = tuple[str, float, int]
POLICIES: tuple[tuple[Step, Step], ...] = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear", 0.6, 5), ("equalize", 1.0, 9)),
    (("color", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
)
"""Those that AutoAugment found for ImageNet: an operation, how often it is applied, and its level."""


def auto_augment(image: Image.Image) -> Image.Image:
    """One policy, drawn at random."""
    for name, chance, level in POLICIES[int(torch.randint(0, len(POLICIES), ()))]:
        if float(torch.rand(())) < chance:
            image = OPERATIONS[name](image, level)
    return image
