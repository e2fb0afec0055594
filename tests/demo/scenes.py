"""Pictures for the documents: scenes.py DIR makes a small image folder, DIR/sky, DIR/boat, DIR/house and DIR/night,
drawn by this program, so that anybody may show them. The same version of numpy and Pillow gives the same files."""

import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

WIDTH, HEIGHT, FINER = 480, 360, 2  # drawn FINER times as large, for smooth edges
SKIES = {  # above, at the horizon, hills
    "morning": ((92, 140, 205), (250, 214, 176), (96, 128, 118)),
    "noon": ((40, 110, 200), (186, 220, 244), (70, 130, 88)),
    "evening": ((58, 44, 106), (250, 138, 84), (72, 52, 92)),
    "night": ((8, 12, 34), (44, 62, 108), (18, 26, 46)),
}


def blend(a, b, t):
    return tuple(round(x + (y - x) * t) for x, y in zip(a, b))


class Scene:
    """A sky with hills, and what stands before them."""

    def __init__(self, seed, sky):
        self.random = np.random.default_rng(seed)
        self.above, self.low, self.hills = SKIES[sky]
        self.w, self.h = WIDTH * FINER, HEIGHT * FINER
        t = np.linspace(0, 1, self.h)[:, None, None] ** 1.3
        sky = np.array(self.above) * (1 - t) + np.array(self.low) * t
        self.image = Image.fromarray(np.broadcast_to(sky, (self.h, self.w, 3)).astype(np.uint8))
        self.draw = ImageDraw.Draw(self.image)
        self.horizon = int(self.h * self.random.uniform(0.58, 0.7))

    def light(self, x, y, r, color):
        """A sun or a moon with its glow."""
        glow = Image.new("RGB", self.image.size)
        ImageDraw.Draw(glow).ellipse((x - 2 * r, y - 2 * r, x + 2 * r, y + 2 * r), fill=blend((0, 0, 0), color, 0.55))
        glow = glow.filter(ImageFilter.GaussianBlur(r))
        sum_ = np.asarray(self.image).astype(int) + np.asarray(glow)
        self.image = Image.fromarray(sum_.clip(0, 255).astype(np.uint8))
        self.draw = ImageDraw.Draw(self.image)
        self.draw.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def clouds(self, n):
        for _ in range(n):
            x, y = self.random.uniform(0, self.w), self.random.uniform(0.05, 0.4) * self.h
            for _ in range(9):
                dx, dy, r = self.random.normal(0, 60), self.random.normal(0, 10), self.random.uniform(16, 42)
                self.draw.ellipse(
                    (x + dx - 1.6 * r, y + dy - r, x + dx + 1.6 * r, y + dy + r), fill=blend(self.low, (255,) * 3, 0.7)
                )

    def ridges(self, n=3):
        x = np.arange(self.w)
        for i in range(n):
            top = self.horizon - (n - i) * self.h * 0.05
            for wave in (1, 2, 5, 11):
                top = top + self.h * 0.07 / wave * np.sin(
                    x / self.w * 6.28 * wave * self.random.uniform(0.7, 1.3) + self.random.uniform(0, 6.28)
                )
            color = blend(self.low, self.hills, (i + 1.4) / (n + 0.4))
            self.draw.polygon([(0, self.h), *zip(x.tolist(), top.tolist()), (self.w, self.h)], fill=color)

    def water(self):
        box = (0, self.horizon, self.w, self.h)
        mirror = self.image.crop((0, 2 * self.horizon - self.h, self.w, self.horizon)).transpose(
            Image.Transpose.FLIP_TOP_BOTTOM
        )
        mirror = Image.blend(
            mirror.resize((self.w, self.h - self.horizon)),
            Image.new("RGB", (self.w, self.h - self.horizon), self.above),
            0.35,
        )
        self.image.paste(mirror, box)
        for _ in range(420):
            y = self.random.uniform(self.horizon + 3, self.h)
            near = (y - self.horizon) / (self.h - self.horizon)
            x, n = self.random.uniform(0, self.w), self.random.uniform(8, 70) * (0.3 + near)
            self.draw.line(
                (x, y, x + n, y), fill=blend(self.above, self.low, self.random.uniform(0.2, 1)), width=1 + int(3 * near)
            )

    def meadow(self, color):
        self.draw.rectangle((0, self.horizon, self.w, self.h), fill=color)
        for _ in range(5200):
            y = self.random.uniform(self.horizon, self.h + 20)
            x, n = self.random.uniform(0, self.w), 4 + 26 * (y - self.horizon) / self.h
            self.draw.line(
                (x, y, x + self.random.normal(0, 4), y - n),
                fill=blend(
                    color, self.random.choice([(30, 70, 20), (190, 200, 90)]).tolist(), self.random.uniform(0, 0.55)
                ),
                width=2,
            )

    def balloon(self, x, y, r, colors):
        for i in range(7):  # gores, the outer ones first
            part = r * (1 - abs(i - 3) * 0.02) * np.cos(i * np.pi / 14)
            self.draw.ellipse((x - part, y - r, x + part, y + r * 1.08), fill=colors[i % len(colors)])
        self.draw.polygon(
            [
                (x - r * 0.62, y + r * 0.75),
                (x + r * 0.62, y + r * 0.75),
                (x + r * 0.16, y + r * 1.5),
                (x - r * 0.16, y + r * 1.5),
            ],
            fill=colors[0],
        )
        for side in (-0.15, 0.15):
            self.draw.line((x + side * r, y + r * 1.45, x + side * r, y + r * 1.8), fill=(60, 45, 30), width=3)
        self.draw.rounded_rectangle((x - r * 0.2, y + r * 1.75, x + r * 0.2, y + r * 2.05), 5, fill=(120, 82, 44))

    def boat(self, x, y, r, sail):
        self.draw.polygon(
            [(x - r, y), (x + r * 1.1, y), (x + r * 0.75, y + r * 0.32), (x - r * 0.75, y + r * 0.32)],
            fill=(110, 54, 34),
        )
        self.draw.line((x - r, y, x + r * 1.1, y), fill=(232, 214, 180), width=6)
        self.draw.line((x, y, x, y - r * 1.9), fill=(70, 50, 36), width=6)
        self.draw.polygon([(x + 8, y - r * 1.85), (x + 8, y - r * 0.15), (x + r, y - r * 0.15)], fill=sail)
        self.draw.polygon(
            [(x - 8, y - r * 1.6), (x - 8, y - r * 0.15), (x - r * 0.7, y - r * 0.15)],
            fill=blend(sail, (255,) * 3, 0.45),
        )

    def house(self, x, y, r, wall, roof):
        self.draw.rectangle((x - r, y - r, x + r, y), fill=wall)
        self.draw.rectangle((x + r * 0.45, y - r * 1.75, x + r * 0.68, y - r * 1.1), fill=blend(roof, (0, 0, 0), 0.35))
        self.draw.polygon([(x - r * 1.2, y - r), (x, y - r * 1.8), (x + r * 1.2, y - r)], fill=roof)
        self.draw.rectangle((x - r * 0.18, y - r * 0.6, x + r * 0.18, y), fill=(84, 54, 38))
        for left in (-0.75, 0.4):
            self.draw.rectangle(
                (x + left * r, y - r * 0.72, x + (left + 0.36) * r, y - r * 0.36),
                fill=(250, 224, 130),
                outline=(255, 255, 250),
                width=5,
            )

    def tree(self, x, y, r):
        self.draw.rectangle((x - r * 0.1, y - r, x + r * 0.1, y), fill=(74, 52, 36))
        for _ in range(60):
            dx, dy, s = *self.random.normal(0, 0.32, 2) * r, self.random.uniform(0.12, 0.3) * r
            self.draw.ellipse(
                (x + dx - s, y - r * 1.3 + dy - s, x + dx + s, y - r * 1.3 + dy + s),
                fill=blend((30, 78, 34), (140, 172, 66), self.random.uniform(0, 1)),
            )

    def towers(self):
        x = -20.0
        while x < self.w:
            w, top = self.random.uniform(50, 120), self.horizon - self.random.uniform(0.05, 0.42) * self.h
            wall = blend((14, 18, 34), (38, 44, 72), self.random.uniform(0, 1))
            self.draw.rectangle((x, top, x + w, self.horizon), fill=wall)
            for row in np.arange(top + 12, self.horizon - 10, 20):
                for column in np.arange(x + 10, x + w - 12, 18):
                    if self.random.random() < 0.45:
                        self.draw.rectangle(
                            (column, row, column + 8, row + 11),
                            fill=blend((255, 190, 90), (255, 244, 200), self.random.random()),
                        )
            x += w + self.random.uniform(0, 14)

    def save(self, path):
        """With a camera's grain."""
        pixels = np.asarray(self.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)).astype(float)
        pixels += self.random.normal(0, 2, pixels.shape[:2])[..., None] + self.random.normal(0, 1, pixels.shape)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=92)


def sky(seed):
    s = Scene(seed, ("noon", "morning", "evening")[seed % 3])
    s.light(s.w * 0.8, s.h * 0.2, 34, (255, 240, 200))
    s.clouds(4)
    s.ridges()
    s.meadow(blend(s.hills, (130, 160, 70), 0.6))
    s.balloon(s.w * 0.75, s.h * 0.3, 44, [(240, 190, 60), (60, 90, 160)])
    s.balloon(
        s.w * 0.36,
        s.h * 0.34,
        150,
        [((206, 52, 48), (250, 226, 190)), ((36, 96, 170), (250, 240, 220)), ((240, 150, 40), (190, 40, 70))][seed % 3],
    )
    return s


def boat(seed):
    s = Scene(seed + 10, ("evening", "noon", "morning")[seed % 3])
    s.light(s.w * 0.28, s.horizon - 120, 52, (255, 226, 170))
    s.clouds(3)
    s.ridges(2)
    s.water()
    s.boat(s.w * 0.82, s.horizon + 30, 40, (250, 240, 226))
    s.boat(s.w * 0.52, s.h * 0.84, 150, [(236, 84, 56), (250, 246, 236), (246, 196, 70)][seed % 3])
    return s


def house(seed):
    s = Scene(seed + 20, ("noon", "morning", "evening")[seed % 3])
    s.clouds(5)
    s.ridges()
    s.meadow((96, 146, 62))
    s.tree(s.w * 0.14, s.h * 0.86, 150)
    s.house(
        s.w * 0.52,
        s.h * 0.9,
        140,
        [(244, 232, 206), (176, 200, 214), (232, 190, 170)][seed % 3],
        [(178, 62, 46), (66, 74, 96), (110, 70, 50)][seed % 3],
    )
    s.tree(s.w * 0.9, s.h * 0.92, 190)
    return s


def night(seed):
    s = Scene(seed + 30, "night")
    for _ in range(160):
        x, y = s.random.uniform(0, s.w), s.random.uniform(0, s.horizon)
        s.draw.ellipse((x, y, x + 3, y + 3), fill=blend((60, 70, 110), (255, 255, 255), s.random.random()))
    s.light(s.w * 0.7, s.h * 0.2, 46, (240, 236, 214))
    s.ridges(1)
    s.towers()
    s.water()
    return s


def make(folder):
    for kind in (sky, boat, house, night):
        for seed in range(3):
            kind(seed).save(pathlib.Path(folder) / kind.__name__ / f"{seed}.jpg")


if __name__ == "__main__":
    make(sys.argv[1])
