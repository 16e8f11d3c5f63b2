"""Checks the built site without a browser, and fails with a list of what is wrong.

    scripts/site/check.py SITE PAGES

- Every link and address in SITE leads to a file of it, and to an anchor there. None is absolute.
- Nothing is fetched from elsewhere: scripts, styles, pictures, fonts.
- Every page is reachable by links from the start page.
- A page has the same blocks as GitHub shows for the text in PAGES. Zensical reads Markdown that is older than
  CommonMark, where a block in a list needs four spaces and a list a blank line before it.
"""

import collections
import html.parser
import pathlib
import re
import sys
import urllib.parse

import markdown_it

BLOCKS = ("li", "ol", "pre", "table", "tr", "blockquote", "img")
FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("source", "srcset")}


class Page(html.parser.HTMLParser):
    """What a file has: addresses, anchors, and the blocks of its article."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.anchors, self.blocks = [], set(), collections.Counter()
        self.is_article = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.is_article |= tag == "article"
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        for name in ("src", "href", "srcset"):
            if attributes.get(name) is not None:
                self.addresses.append((tag, name, attributes[name]))
        if self.is_article and tag in BLOCKS:
            self.blocks[tag] += 1

    def handle_endtag(self, tag):
        self.is_article &= tag != "article"


def broken(site, file, pages):
    """What is wrong with the addresses of a page."""
    for tag, name, address in pages[file].addresses:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme or parts.netloc:
            if (tag, name) in FETCHED and parts.scheme != "data":
                yield f"fetches {address}"
            continue
        if parts.path.startswith("/"):
            yield f"{address} only works at the root of a host"
            continue
        target = (file.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else file
        if not target.is_file():
            yield f"nothing is at {address}"
        elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
            yield f"{address} has no such anchor"


def reachable(site, pages):
    """The pages that links lead to from the start page."""
    found, waiting = set(), [site / "index.html"]
    while waiting:
        file = waiting.pop()
        if file in found or file not in pages:
            continue
        found.add(file)
        paths = (urllib.parse.urlsplit(address) for tag, _, address in pages[file].addresses if tag == "a")
        waiting += [(file.parent / path.path).resolve() for path in paths if not path.scheme and path.path]
    return found


def rendered_otherwise(page, source):
    """How the blocks of a page differ from those of its text in CommonMark."""
    text = re.sub(r"\A---\n.*?\n---\n", "", source.read_text(), flags=re.DOTALL)
    expected = Page(f"<article>{markdown_it.MarkdownIt('gfm-like', {'linkify': False}).render(text)}").blocks
    for block in BLOCKS:
        if page.blocks[block] != expected[block]:
            yield f"{page.blocks[block]} <{block}>, where GitHub shows {expected[block]}: indent blocks in lists by " \
                  f"four spaces, and put a blank line before lists and tables"


def main(site, sources):
    site, sources = pathlib.Path(site).resolve(), pathlib.Path(sources)
    pages = {file: Page(file.read_text()) for file in site.rglob("*.html")}
    wrong = [f"{file.relative_to(site)}: {what}" for file in pages for what in broken(site, file, pages)]
    lost = pages.keys() - reachable(site, pages) - {site / "404.html"}
    wrong += [f"{file.relative_to(site)}: no link leads here" for file in lost]
    for source in sources.rglob("*.md"):
        name = source.relative_to(sources).with_suffix(".html").as_posix()
        file = site / re.sub(r"README\.html$", "index.html", name)
        wrong += [f"{name}: {what}" for what in rendered_otherwise(pages[file], source)]
    for style in site.rglob("*.css"):
        wrong += [f"{style.relative_to(site)}: fetches {url}"
                  for url in re.findall(r"""url\(["']?((?:https?:)?//[^)"']+)""", style.read_text())]
    if wrong:
        sys.exit("\n".join(sorted(wrong)))
    print(f"{len(pages)} pages, {sum(len(page.addresses) for page in pages.values())} links, no dead one")


if __name__ == "__main__":
    main(*sys.argv[1:])
