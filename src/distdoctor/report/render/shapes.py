"""What a chart is made of: rectangles, curves, lines and words at places. Nothing here knows HTML."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A rectangle with the text that appears over it."""

    x: float
    y: float
    width: float
    height: float
    title: str
    hot: bool = False
    shade: int | None = None
    """Of a heat strip."""
    part: int | None = None
    """Place in the legend, of a part of a stacked bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A word at a place; `anchor` as in SVG."""

    x: float
    y: float
    text: str
    anchor: str = "middle"
    hot: bool = False
    title: str = ""
    """The whole of what is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upright:
    """A vertical line of the grid, or the line of a limit."""

    x: float
    top: float
    bottom: float
    is_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of the legend; `style` counts the colours."""

    name: str
    style: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point of a line."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One named line: its stretches without gaps, as `x,y x,y …`, and its points."""

    name: str
    colour: int
    stretches: tuple[str, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A filled outline, as `x,y x,y …`, with the text that appears over it."""

    part: int
    """Place in the legend."""
    outline: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that is drawn, in a box of `width` by `height`."""

    kind: str
    width: int
    height: int
    bars: tuple[Bar, ...] = ()
    curves: tuple[Curve, ...] = ()
    labels: tuple[Label, ...] = ()
    grid: tuple[float, ...] = ()
    """Heights of the horizontal lines."""
    left: float = 0
    right: float = WIDTH
    """Ends of the horizontal lines."""
    uprights: tuple[Upright, ...] = ()
    note: str = ""
    scale: tuple[str, str] | None = None
    """Smallest and largest value of a heat strip."""
    legend: tuple[Key, ...] = ()
    description: str = ""
    """What the picture shows, for those who do not see it."""
    bands: tuple[Bar, ...] = ()
    """Behind everything else, one after the other from left to right."""
    areas: tuple[Area, ...] = ()
    level: float | None = None
    """Height of the horizontal line of a limit."""
    peak: Point | None = None
    is_hot: bool = False
    """The peak is beyond the limit."""
