"""Compares what the proxy costs with budget.toml: instructions of a request, size of the binary, code
lines, dependencies, words of the docs. Fails if anything is more than 1 % above its budget."""

import pathlib
import re
import subprocess
import sys
import tomllib
from collections import Counter

import count

ROOT = pathlib.Path(__file__).parents[2]
TOLERANCE = 0.01


def main():
    [binary] = sys.argv[1:]
    budget = tomllib.loads((ROOT / "benches/instructions/budget.toml").read_text())
    measured = {
        "instructions": dict(count.count(binary, budget["instructions"])),
        "code_lines": code_lines(),
        "dashboard": {"lines": dashboard_lines()},
        "binary": {"megabytes": pathlib.Path(binary).stat().st_size / 1e6},
        "dependencies": dependencies(),
        "docs": {"words": docs_words()},
    }
    print("| | measured | budget | |\n| --- | --- | --- | --- |")
    above = [
        f"{section}: {name}"
        for section, figures in measured.items()
        for name, figure in figures.items()
        if not compare(section, name, figure, budget[section].get(name, 0))
    ]
    unknown = [f"{section}: {name}" for section in budget for name in budget[section] if name not in measured[section]]
    if above or unknown:
        sys.exit(
            "".join(f"above the budget: {one}\n" for one in above)
            + "".join(f"in budget.toml, but not measured: {one}\n" for one in unknown)
            + "Make it smaller; or raise the budget, and say in the commit what that buys."
        )


def compare(section, name, figure, budget):
    """Prints a row; true if the figure keeps within the budget."""
    ratio = figure / budget if budget else float("inf")
    print(f"| {section}: {name} | {figure:,.0f} | {budget:,} | {ratio - 1:+.1%} |")
    return ratio <= 1 + TOLERANCE


def code_lines():
    """The code lines of each part of src, and of each crate: no blanks, comments and tests."""
    lines = Counter()
    for path in [*(ROOT / "src").rglob("*.rs"), *(ROOT / "crates").rglob("*.rs")]:
        relative = path.relative_to(ROOT)
        if path.name == "tests.rs" or "tests" in relative.parts:
            continue
        code = re.split(r"\n#\[cfg\(test\)\]\n(?:pub(?:\(crate\))? )?mod \w+ \{", path.read_text())[0]
        stripped = (line.strip() for line in code.splitlines())
        part = relative.parts[1].removesuffix(".rs")
        if not (ROOT / relative.parts[0] / part).is_dir():
            part = "files without a folder"
        lines[part] += sum(1 for line in stripped if line and not line.startswith("//"))
    return dict(sorted(lines.items())) | {"all": lines.total()}


def dashboard_lines():
    """The lines of the dashboard's scripts and styles."""
    paths = [path for path in (ROOT / "src/admin/dashboard").rglob("*") if path.suffix in {".js", ".css"}]
    return sum(len(path.read_text().splitlines()) for path in paths)


def dependencies():
    def crates(*arguments):
        tree = ["cargo", "tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}", *arguments]
        listed = subprocess.run(tree, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        return len({" ".join(line.split()[:2]) for line in listed.splitlines() if line and str(ROOT) not in line})

    return {"direct": crates("--depth", "1"), "all": crates()}


def docs_words():
    texts = [path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    prose = (re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for text in texts)
    return sum(len(re.findall(r"\b[\w'-]+\b", text)) for text in prose)


if __name__ == "__main__":
    main()
