"""Prepares pages of docs, which are written for readers of the repository, for the site."""

import logging
import os
import re

log = logging.getLogger("mkdocs.hooks")

FENCE = re.compile(r"^( {0,3})(```|~~~)")
LINK = re.compile(r"(\]\()(\.\.?/[^)\s#]*)")
LIST_ITEM = re.compile(r"^([-*]|\d+\.) ")


def on_page_markdown(markdown, page, config, **_):
    """Leads links to files outside of docs to the repository, and separates lists from text.

    GitHub begins a list below a line of text, where the library that renders the site needs an
    empty line.
    """
    docs = config["docs_dir"]
    folder = os.path.dirname(os.path.join(docs, page.file.src_path))

    def lead(match):
        target = os.path.normpath(os.path.join(folder, match[2]))
        if os.path.commonpath([target, docs]) == docs:
            return match[0]
        path = os.path.relpath(target, os.path.dirname(docs))
        if not os.path.exists(target):
            log.warning("%s has a link to %s, which does not exist", page.file.src_path, path)
        kind = "tree" if os.path.isdir(target) else "blob"
        return f"{match[1]}{config['repo_url']}/{kind}/main/{path}"

    lines, fenced, before = [], False, ""
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            line = LINK.sub(lead, line)
            if LIST_ITEM.match(line) and before.strip() and not LIST_ITEM.match(before) and before[0] not in " #|":
                lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines)
