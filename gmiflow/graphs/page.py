"""What all our SVG documents share: the frame, the fonts, and colours that follow the reader's light or dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gmiflow.graphs.colors import DARK, LIGHT, Palette


def document(
    title: str, width: float, height: float, parts: Sequence[str], *, definitions: str = "", style: str = ""
) -> str:
    """An SVG document.

    Args:
        title: for readers that hear it.
        width: in pixels.
        height: in pixels.
        parts: its elements, in the order of drawing.
        definitions: a `<defs>` element, or "".
        style: further CSS rules.
    """
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}{style}</style>",
        *([definitions] if definitions else []),
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def text(x: float, y: float, content: str, kind: str, anchor: str = "start") -> str:
    """A line of text with its baseline at ``y``; ``kind`` is its CSS classes, ``anchor`` what ``x`` is of it."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{place} xml:space="preserve">{escape(content)}</text>'


def _style() -> str:
    fonts = (
        "text{font-family:-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px}"
        ".title{font-size:18px;font-weight:600}.name{font-size:14px;font-weight:600}.small{font-size:11px}"
        ".port,.type{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        ".type{font-size:11px}.line{fill:none;stroke-width:1.4}.step{stroke-width:2.4}"
        ".frame{fill:none;stroke-width:1.4}"
        ".rule{fill:none;stroke-width:1}.dot{stroke-width:1.4}"
    )
    return fonts + _theme(LIGHT) + "@media(prefers-color-scheme:dark){" + _theme(DARK) + "}"


def _theme(palette: Palette) -> str:
    rules = [
        f".paper{{fill:{palette.paper}}}",
        f".title,.name,.port{{fill:{palette.text}}}",
        f".faint,.type{{fill:{palette.faint}}}",
        f".line{{stroke:{palette.line}}}.head{{fill:{palette.line}}}",
    ]
    for role, colors in palette.roles.items():
        rules.append(f".{role}.box{{fill:{colors.fill}}}.{role}.band{{fill:{colors.band}}}")
        rules.append(
            f".{role}.rule,.{role}.frame{{stroke:{colors.stroke}}}.{role}.dot{{fill:{palette.paper};stroke:{colors.stroke}}}"
        )
    return "".join(rules)
