"""Plots as SVG files, which are the same if the data is."""


def pyplot():
    """matplotlib's pyplot, imported only where something is drawn, so that everything else needs only Python."""
    import matplotlib

    matplotlib.use("svg")
    # Keep text as text, and make the output deterministic.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tollgate", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


def save(figure, path):
    """Writes a figure, without the upper and right lines of its axes."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot().close(figure)
