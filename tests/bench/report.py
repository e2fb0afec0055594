"""Tables, the list of ratios, the plot."""

import statistics

MEDIAN = statistics.median


def heading(about):
    for key in ("machine", "data", "sizes"):
        print(f"{key}: {about[key]}")


def number(value):
    """About three digits, without exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.5f}"


def spread(values):
    """Median, and the range if there are several values."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(MEDIAN(values))} ({number(min(values))} to {number(max(values))})"


def columns(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print(
            "  "
            + "  ".join(
                text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths))
            ).rstrip()
        )


def table(result):
    """One scenario: medians, and the range over the rounds."""
    unit = result["unit"]
    names = {
        "rate": f"{unit}/s",
        "cpu": f"CPU ms/{unit.rstrip('s') if unit != 'batches' else 'batch'}",
        "ms": "ms",
        "mib": "MiB resident",
    }
    used = [key for key in names if any(key in row for row in result["rows"])]
    print(f"\n{result['title']}")
    if "text" in result:
        print("  " + result["text"].strip().replace("\n", "\n  "), flush=True)
        return
    columns(
        [[""] + [names[key] for key in used]]
        + [[row["who"]] + [spread(row[key]) if row.get(key) else "" for key in used] for row in result["rows"]]
    )
    for each in result["ratios"]:
        print(f"  {each['text']}: {spread(each['values'])}{verdict(each)}", flush=True)


def partial(ratios):
    """What a part of a scenario gave, as soon as it is known."""
    for each in filter(None, ratios):
        print(f"  ... {each['text']}: {spread(each['values'])}", flush=True)


def verdict(each):
    if each["target"] is None:
        return ""
    value = MEDIAN(each["values"])
    met = value >= each["target"] if each["at_least"] else value <= each["target"]
    return (
        f"   [target: {'at least' if each['at_least'] else 'at most'} {each['target']:g}: {'met' if met else 'MISSED'}]"
    )


def summary(about, results, absent):
    print("\nRatios and limits, medians")
    for result in results:
        for each in result["ratios"]:
            print(f"  {result['scenario']:12} {each['text']}: {number(MEDIAN(each['values']))}{verdict(each)}")
    print("\nVersions: " + "; ".join(sorted(set(about["versions"].values()))))
    for who, why in sorted(absent.items()):
        print(f"Absent: {who}: {why}")


def plot(about, results, path):
    """Two bar charts per decoding scenario: images a second, CPU per image."""
    try:
        import matplotlib
    except ImportError:
        print("No plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    shown = [r for r in results if any(row.get("rate") and row.get("cpu") for row in r["rows"])]
    if not shown:
        return
    heights = [max(1.4, 0.42 * len(r["rows"]) + 0.9) for r in shown]
    figure, axes = pyplot.subplots(
        len(shown), 2, figsize=(12, sum(heights) + 1.4), squeeze=False, height_ratios=heights
    )
    for line, result in zip(axes, shown):
        rows = [row for row in result["rows"] if row.get("rate")]
        for axis, key, label in (
            (line[0], "rate", f"{result['unit']} per second"),
            (line[1], "cpu", "CPU milliseconds each"),
        ):
            medians = [MEDIAN(row[key]) for row in rows]
            error = [
                [m - min(row[key]) for m, row in zip(medians, rows)],
                [max(row[key]) - m for m, row in zip(medians, rows)],
            ]
            colours = [
                "#1f6f8b" if row["who"].startswith(("batchd", "1 t", "2 t", "4 t")) else "#b9b9b9" for row in rows
            ]
            bars = axis.barh(
                [row["who"] for row in rows],
                medians,
                xerr=error,
                color=colours,
                error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
            )
            axis.bar_label(bars, [number(m) for m in medians], padding=6, fontsize=8)
            axis.invert_yaxis()
            axis.margins(x=0.18)
            axis.set_xlabel(label, fontsize=8)
            axis.tick_params(labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
        line[0].set_title(result["title"], fontsize=10, loc="left")
        line[1].set_yticklabels([])
    versions = "; ".join(sorted(set(about["versions"].values())))
    figure.text(
        0.01,
        0.005,
        f"{about['date']}  {about['machine']}\n{about['data']}; {about['sizes']}; bars: median and range\n{versions}",
        fontsize=7,
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=130)
    print(f"Plot: {path}")
