"""Line charts as SVG, both axes by powers of ten. Needs nothing but Python."""
import html
import math

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 180, 44, 48
COLOURS = ["#0b6e99", "#c2571a", "#3f7d20", "#7a3e9d", "#8a6d00"]


def short(value):
    """A power of ten as people write it."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def decades(values):
    """The powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def chart(title, x_name, y_name, lines):
    """One chart. `lines` has points (x, y) by name; what is not above zero is left out."""
    lines = {name: [(x, y) for x, y in points if x > 0 and y > 0] for name, points in lines.items()}
    lines = {name: points for name, points in lines.items() if points}
    x_low, x_high = decades([x for points in lines.values() for x, _ in points])
    y_low, y_high = decades([y for points in lines.values() for _, y in points])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x, y):
        across = LEFT + (math.log10(x) - x_low) / (x_high - x_low) * (right - LEFT)
        down = bottom - (math.log10(y) - y_low) / (y_high - y_low) * (bottom - TOP)
        return across, down

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" fill="#222222">{html.escape(title)}</text>',
    ]
    for power in range(x_low, x_high + 1):
        across, _ = at(10.0**power, 10.0**y_low)
        out.append(f'<path d="M{across:.1f} {TOP}V{bottom}" stroke="#dddddd"/>')
        out.append(f'<text x="{across:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#444444">{short(10.0**power)}</text>')
    for power in range(y_low, y_high + 1):
        _, down = at(10.0**x_low, 10.0**power)
        out.append(f'<path d="M{LEFT} {down:.1f}H{right}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{down + 4:.1f}" text-anchor="end" fill="#444444">{short(10.0**power)}</text>')
    out.append(f'<text x="{(LEFT + right) / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle" fill="#222222">{html.escape(x_name)}</text>')
    middle = (TOP + bottom) / 2
    out.append(f'<text x="16" y="{middle:.1f}" text-anchor="middle" fill="#222222" transform="rotate(-90 16 {middle:.1f})">'
               f"{html.escape(y_name)}</text>")
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in points]
        path = "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" fill="{colour}"/>' for across, down in places]
        label = TOP + 14 + 20 * number
        out.append(f'<path d="M{right + 12} {label - 4}H{right + 32}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{right + 38}" y="{label}" fill="#222222">{html.escape(name)}</text>')
    out.append("</svg>\n")
    return "\n".join(out)
