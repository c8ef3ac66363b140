"""A program in a terminal of tmux, with keys typed, and its screen as an SVG that opens anywhere."""

import re
import subprocess
import time
from html import escape

# Pixels of a character, and of the margin.
WIDTH, HEIGHT, MARGIN = 8.4, 17, 10
# The sixteen colours by number, on a dark ground.
COLOURS = ["#16181c", "#ff8a80", "#7bd88f", "#f0d060", "#7aa2f7", "#d0a0e8", "#6cc8d8", "#d8d8d8",
           "#707070", "#ffa59c", "#9be8ac", "#ffe28a", "#9fbdff", "#e4c0f5", "#92e0ec", "#ffffff"]
BACK, FRONT = COLOURS[0], COLOURS[7]


class Terminal:
    """Runs `words` while it is entered, on a screen of `columns` x `rows`."""

    def __init__(self, words, columns=80, rows=24):
        self.words, self.columns, self.rows = words, columns, rows

    def __enter__(self):
        self._tmux("new-session", "-d", "-x", str(self.columns), "-y", str(self.rows),
                   "env", "-u", "NO_COLOR", "LC_ALL=C.UTF-8", *self.words)
        self._tmux("set", "status", "off")
        return self

    def __exit__(self, *_):
        self._tmux("kill-server")

    def _tmux(self, *words):
        # A server of its own: no session of the user is touched, and no configuration is read.
        command = ["tmux", "-u", "-L", "nrw-pictures", "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def type(self, *keys):
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(0.2)

    def svg(self):
        """The screen as SVG."""
        screen = self._tmux("capture-pane", "-e", "-p", "-N")
        return render(screen.rstrip("\n").split("\n"), self.columns, self.rows)


def runs(line, style):
    """The parts of `line` that look alike, each with its style; and the style at its end."""
    parts = []
    for escaped, text in re.findall(r"\x1b\[([0-9;]*)m|([^\x1b]+)", line):
        if text:
            parts.append((dict(style), text))
        else:
            style = changed(style, [int(word or 0) for word in escaped.split(";")])
    return parts, style


def changed(style, codes):
    """`style` after a sequence that selects the graphic rendition (SGR, ECMA-48 8.3.117)."""
    style = dict(style)
    codes = iter(codes)
    for code in codes:
        if code == 38 and next(codes, None) == 5:
            style["colour"] = COLOURS[next(codes, 7) % 16]
        elif code == 0:
            style = {}
        elif code == 1:
            style["bold"] = True
        elif code == 7:
            style["reversed"] = True
        elif code == 39:
            style.pop("colour", None)
        elif 30 <= code <= 37:
            style["colour"] = COLOURS[code - 30]
        elif 90 <= code <= 97:
            style["colour"] = COLOURS[code - 90 + 8]
    return style


def render(lines, columns, rows):
    width, height = columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
           f'height="{height:g}" font-family="ui-monospace,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" '
           f'font-size="14">',
           f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>']
    style = {}
    for row, line in enumerate(lines[:rows]):
        column = 0
        parts, style = runs(line, style)
        for look, text in parts:
            colour, back = look.get("colour", FRONT), None
            if look.get("reversed"):
                colour, back = BACK, colour
            x, y = MARGIN + column * WIDTH, MARGIN + row * HEIGHT
            span = len(text) * WIDTH
            if back:
                out.append(f'<rect x="{x:.4g}" y="{y}" width="{span:.4g}" height="{HEIGHT}" fill="{back}"/>')
            if text.strip():
                blanks = len(text) - len(text.lstrip())
                shown = text.strip()
                weight = ' font-weight="bold"' if look.get("bold") else ""
                out.append(
                    f'<text x="{x + blanks * WIDTH:.4g}" y="{y + 13}" fill="{colour}"{weight} xml:space="preserve" '
                    f'textLength="{len(shown) * WIDTH:.4g}">{escape(shown)}</text>')
            column += len(text)
    return "\n".join([*out, "</svg>", ""])
