"""The site: the Markdown that the repository holds, in the order of docs/README.md. ``make site`` builds it.

``SITE_URL`` is where it will be, for llms.txt; ``REPOSITORY_URL`` where links to code lead. Without them such links are
relative, or plain text.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

TOP = Path(__file__).parents[2]
FOLDERS = ("docs", "components", "pairmill", "images", "manifests", "examples")
SECTIONS = {
    "Guides": r"docs/\w+",
    "Reference": r"components/.*|pairmill/sources/.*|images/.*|manifests/.*|examples/.*",
    "Contributing": r"[A-Z]+|pairmill/.*",
    "Decisions": r"docs/decisions/.*",
}
"""Parts of the navigation, and which pages each has."""

project = "pairmill"
root_doc = "README"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
include_patterns = ["*.md", *(f"{folder}/**.md" for folder in FOLDERS)]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["misc.highlighting_failure"]  # `…` in an example
html_theme = "furo"
html_title = "pairmill"
html_sourcelink_suffix = ""
html_baseurl = os.environ.get("SITE_URL", "")


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Add every page to the first one's tree, which is shown beside all; guides are ordered as in docs/README.md."""
    if name != root_doc:
        return
    listed = re.findall(r"^- \[\w+\]\((\w+)\.md\)", (TOP / "docs/README.md").read_text("utf-8"), re.MULTILINE)
    order = {f"docs/{page}": number for number, page in enumerate(listed)}
    pages = sorted(app.env.found_docs - {root_doc}, key=lambda page: (order.get(page, len(order)), page))
    for section, pattern in SECTIONS.items():
        inside = "\n".join(page for page in pages if re.fullmatch(pattern, page))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section}\n\n{inside}\n```\n"


def lead_folders(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead links to folders to the folder's page, or to the repository if it has none."""

    def lead(link: re.Match[str]) -> str:
        folder = ((TOP / name).parent / link[2]).resolve()
        if "://" in link[2] or not folder.is_dir():
            return link[0]
        if (folder / "README.md").is_file():
            return f"[{link[1]}]({link[2].rstrip('/')}/README.md)"
        code = os.environ.get("REPOSITORY_URL")
        return f"[{link[1]}]({code}/tree/main/{folder.relative_to(TOP)})" if code else link[1]

    source[0] = re.sub(r"\[([^\[\]]+)\]\(([^()#\s]+)\)", lead, source[0])


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt, the list of pages as Markdown, and the first page under the name that servers look for."""
    if error:
        return
    readme, pages = (TOP / name for name in ("README.md", "docs/README.md"))
    (first,) = re.findall(r"\A# pairmill\n\n(.*?)\n\n", readme.read_text(encoding="utf-8"), re.DOTALL)
    summary = re.sub(r"\s+", " ", first)
    lead = f"]({html_baseurl}_sources/docs/"
    listed = [
        line.replace("](", lead, 1) for line in pages.read_text(encoding="utf-8").splitlines() if line[:2] == "- "
    ]
    text = "\n".join([f"# pairmill\n\n> {summary}\n\n## Pages\n", *listed])
    (app.outdir / "llms.txt").write_text(f"{text}\n", encoding="utf-8")
    (app.outdir / "index.html").write_bytes((app.outdir / f"{root_doc}.html").read_bytes())


def setup(app: Sphinx) -> None:
    """Connect the functions above with the build."""
    # Without this a new page would not be in the tree of a page that is not read again.
    app.connect("env-get-outdated", lambda *_: [root_doc])
    app.connect("source-read", add_navigation)
    app.connect("source-read", lead_folders)
    app.connect("build-finished", finish)
