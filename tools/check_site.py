#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_site.py FOLDER - checks a built site: every relative link, picture, style and
script of its pages is a file of FOLDER, and every anchor an id of its page.  Prints the
number of links to other sites, which it does not fetch; --external lists them."""

import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and ids of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], {"", "top"}
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append((self.getpos()[0], value))
            elif name in ("id", "name"):
                self.ids.add(value)


def main():
    folder = os.path.abspath(sys.argv[1])
    pages = {}
    for base, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".html"):
                path = os.path.join(base, name)
                pages[path] = Page(path)
    if not pages:
        sys.exit(f"check_site.py: {folder} has no pages")
    faults, external = [], set()
    for path, page in sorted(pages.items()):
        for line, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme != "data":
                    external.add(link)
                continue
            target = path
            if parts.path:
                target = os.path.normpath(os.path.join(os.path.dirname(path),
                                                       unquote(parts.path)))
            where = f"{os.path.relpath(path, folder)}:{line}: link to {link}"
            if not os.path.isfile(target):
                faults.append(f"{where}: there is no such file")
            elif target in pages and unquote(parts.fragment) not in pages[target].ids:
                faults.append(f"{where}: the page has no such anchor")
    print("\n".join(faults), end="\n" if faults else "")
    if "--external" in sys.argv:
        print("\n".join(sorted(external)))
    print(f"{len(pages)} pages, {sum(len(x.links) for x in pages.values())} links, "
          f"{len(faults)} broken; {len(external)} to other sites, not fetched")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
