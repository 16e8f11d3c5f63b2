"""Collects the pages of the site in one folder, and writes the settings with which Zensical builds it.

    scripts/site/stage.py FOLDER

Pages keep their paths, so that links between them stay as GitHub has them; README.md is the start page.
Navigation is that of docs/README.md. A linked file that isn't a page becomes one, so does a linked
folder, and a page has a link to download the file.
"""

import json
import pathlib
import re
import shutil
import sys

SITE = pathlib.Path(__file__).resolve().parent
ROOT = SITE.parent.parent
CRATES = ["limiter", "http1", "redis-client", "traffic", "readable"]
PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/recorded/README.md",
           *(f"crates/{crate}/README.md" for crate in CRATES)]
# The words of a file's ending for the highlighter.
LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".service": "ini",
             ".cfg": "haproxy", ".conf": "nginx", ".js": "js", ".hcl": "terraform"}
# Shown by a page of their own only up to this size. Larger files are downloads.
MOST_SHOWN = 30_000
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^ *```")


def github_anchor(title, seen):
    """The anchor that GitHub gives a title, as tests/repository/links.rs."""
    anchor = "".join(c for c in title.strip().lower() if c.isalnum() or c in " -_").replace(" ", "-")
    count = seen[anchor] = seen.get(anchor, -1) + 1
    return f"{anchor}-{count}" if count else anchor


def outside_code(text, change):
    """The text, with stretches of lines outside of blocks of code replaced by `change` of them."""
    parts, lines, is_code = [], [], False
    for line in text.splitlines(keepends=True):
        if FENCE.match(line):
            if is_code:
                parts.append("".join([*lines, line]))
                lines = []
            else:
                parts.append(change("".join(lines)))
                lines = [line]
            is_code = not is_code
        else:
            lines.append(line)
    return "".join([*parts, change("".join(lines))])


class Stage:
    """The folder of pages that is being filled."""

    def __init__(self, folder):
        self.folder = folder
        self.shown = set()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def copy(self, name):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path)

    def page(self, source, name=None, change=lambda text: text):
        """Copies a page, with GitHub's anchors, and what it links to."""
        folder = (ROOT / source).parent
        seen = {}

        def convert(text):
            text = LINK.sub(lambda link: link[1] + self.target(folder, link[2]) + link[3], text)
            # Zensical wants four spaces before a list in a list, and takes any number for one: "400. ..".
            text = re.sub(r"^ {2,3}(?=[-*] |\d\. )", "    ", text, flags=re.MULTILINE)
            text = re.sub(r"^( +\d{2,})\. ", r"\1\\. ", text, flags=re.MULTILINE)
            heading = re.compile(r"^(#+ +)(.*?) *$", re.MULTILINE)
            return heading.sub(lambda it: f"{it[1]}{it[2]} {{ #{github_anchor(it[2], seen)} }}", text)

        self.write(name or source, change(outside_code((ROOT / source).read_text(), convert)))

    def target(self, folder, target):
        """What a link leads to in the site."""
        if "://" in target or target.startswith(("#", "mailto:")):
            return target
        path, hash_, anchor = target.partition("#")
        file = (folder / path).resolve()
        name = file.relative_to(ROOT).as_posix()
        if name == "README.md":
            return path.replace("README.md", "index.md") + hash_ + anchor
        if file.suffix == ".md":
            return target
        if file.is_dir():
            self.show_folder(name)
            return f"{path.rstrip('/')}/index.md"
        if not file.exists():
            sys.exit(f"{folder}: nothing is at {target}")
        self.copy(name)
        if file.suffix in (".svg", ".png") or file.stat().st_size > MOST_SHOWN:
            return target
        self.show(name)
        return path + ".md"

    def show(self, name):
        """A page that shows a file."""
        if name not in self.shown:
            self.shown.add(name)
            self.write(f"{name}.md", self.hidden(name) + self.text_of(name, pathlib.Path(name).name))

    def show_folder(self, name):
        """A page that shows all files of a folder."""
        if name in self.shown:
            return
        self.shown.add(name)
        parts = [self.hidden(name + "/")]
        for file in sorted((ROOT / name).rglob("*")):
            if file.is_file() and file.stat().st_size <= MOST_SHOWN:
                inner = file.relative_to(ROOT / name).as_posix()
                self.copy(f"{name}/{inner}")
                parts.append(f"## {inner}\n\n{self.text_of(f'{name}/{inner}', inner)}\n")
        self.write(f"{name}/index.md", "".join(parts))

    @staticmethod
    def hidden(title):
        """The head of a page that search and navigation leave out: its text is found where it is explained."""
        return f"---\nsearch: {{ exclude: true }}\n---\n\n# {title}\n\n"

    @staticmethod
    def text_of(name, link):
        """A file's text, and a link to the file."""
        text = (ROOT / name).read_text()
        language = LANGUAGES.get(pathlib.Path(name).suffix, "text")
        return f'<a href="{link}" download>Download this file</a>\n\n' \
               f"``````{language}\n{text.rstrip()}\n``````\n"


def navigation():
    """Sections and pages in the order of docs/README.md: a line in bold, and the links below it."""
    sections, listed = [], set()
    for line in (ROOT / "docs/README.md").read_text().splitlines():
        if section := re.fullmatch(r"(?:\*\*|##+ )([^*]+?)(?:\*\*)?", line):
            sections.append((section[1], []))
        for title, target in re.findall(r"\[([^]]+)\]\(([\w-]+\.md)\)", line):
            if sections and target not in listed:
                listed.add(target)
                sections[-1][1].append({title.replace("`", "")[:1].upper() + title.replace("`", "")[1:]:
                                        f"docs/{target}"})
    missing = {path.name for path in (ROOT / "docs").glob("*.md")} - listed - {"README.md"}
    if missing:
        sys.exit(f"docs/README.md lists no section with {', '.join(sorted(missing))}")
    titles = {"CHANGELOG.md": "Changelog", "CONTRIBUTING.md": "Contributing", "SECURITY.md": "Security policy",
              "tests/recorded/README.md": "Compared with others",
              **{f"crates/{crate}/README.md": f"The crate {crate}" for crate in CRATES}}
    return [{"Home": [{"Overview": "index.md"}, {"All pages": "docs/README.md"}]},
            *({title: pages} for title, pages in sections if pages),
            {"Project": [{titles[name]: name} for name in PROJECT]}]


def landing(text):
    """The start page: the README, with buttons below its first paragraph."""
    buttons = "\n".join(f"[{title}]({target}){{ .md-button {kind}}}" for title, target, kind in (
        ("Start the tutorial", "docs/tutorial.md", ".md-button--primary "),
        ("Find a configuration", "docs/cookbook.md", ""),
        ("All pages", "docs/README.md", "")))
    title, first, rest = text.split("\n\n", 2)
    return f"{title}\n\n{first}\n\n{buttons}\n\n{rest}"


def main(folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    stage = Stage(pages)
    stage.page("README.md", "index.md", landing)
    for name in [*sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")), *PROJECT]:
        stage.page(name)
    shutil.copytree(SITE / "assets", pages / "assets")
    shutil.copyfile(ROOT / "src/admin/dashboard/icon.svg", pages / "assets/icon.svg")
    hidden = "".join(f"  /{name}{'/index' if (ROOT / name).is_dir() else ''}.md\n" for name in sorted(stage.shown))
    settings = (SITE / "mkdocs.yml").read_text().replace("custom_dir: theme", f"custom_dir: {SITE / 'theme'}")
    (folder / "mkdocs.yml").write_text(
        f"{settings}\ndocs_dir: pages\nsite_dir: site\n"
        f"not_in_nav: |\n{hidden}\nnav: {json.dumps(navigation())}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
