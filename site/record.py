"""Records the five-minute start as a drawing that moves: record.py PERIGEE FILE.

It runs the real commands on a terminal in an empty folder, and writes what they print as an SVG
that shows line after line. A page that prints, or a reader who wants no motion, sees the end.
"""

import html
import os
import pty
import re
import select
import subprocess
import sys
import tempfile

COMMANDS = [
    "perigee init --source file --sink eventstore",
    "cat emails.lua",
    "perigee test pipeline_test.yaml",
    "perigee run pipeline.yaml 2>/dev/null",
    'perigee query "SELECT event_name, count(*) FROM emails GROUP BY 1 ORDER BY 2 DESC"',
]
COLUMNS, ROWS = 100, 24
WIDTH, LINE, LEFT, TOP = 800, 18, 14, 26
TYPING, READING, END = 0.9, 1.4, 6  # seconds for a command, for its output, and at the end
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f]")


def run(command, folder, env):
    """Returns the lines that a command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        if not some:
            break
        text += some
    os.close(ours)
    if process.wait(60) != 0:
        sys.exit(f"{command} failed:\n{text.decode()}")
    lines = [CONTROL.sub("", line.rsplit("\r", 1)[-1]) for line in text.decode().replace("\r\n", "\n").rstrip("\n").split("\n")]
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in lines]


def draw(steps):
    """Returns the SVG of lines, each a time, a class and a text."""
    total = steps[-1][0] + END
    last = max(0, len(steps) - ROWS)
    moves, body = [], []
    for i, (at, kind, text) in enumerate(steps):
        if i + 1 > ROWS:
            moves.append(f"{100 * at / total:.2f}%{{transform:translateY({-(i + 1 - ROWS) * LINE}px)}}")
        body.append(f'<text class="{kind}" x="{LEFT}" y="{TOP + i * LINE}" style="animation-delay:{at:.1f}s">{html.escape(text)}</text>')
    height = TOP + ROWS * LINE
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="The first five minutes with perigee, on a terminal">
<style>
text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d7dbe0;white-space:pre;opacity:0;animation:show .01s forwards}}
.c{{fill:#7cc4ff}}
g{{animation:scroll {total:.1f}s step-end forwards}}
@keyframes show{{to{{opacity:1}}}}
@keyframes scroll{{{"".join(moves)}to{{transform:translateY({-last * LINE}px)}}}}
@media print,(prefers-reduced-motion:reduce){{text{{opacity:1;animation:none}}g{{animation:none;transform:translateY({-last * LINE}px)}}}}
</style>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#16191e"/>
<svg y="8" width="{WIDTH}" height="{height - 16}"><g>
{chr(10).join(body)}
</g></svg>
</svg>
"""


def main(perigee, file):
    at, steps = 0.3, []
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, PATH=os.path.dirname(os.path.abspath(perigee)) + ":" + os.environ["PATH"], NO_COLOR="1", TERM="xterm", COLUMNS=str(COLUMNS))
        for command in COMMANDS:
            steps.append((at, "c", "$ " + command.replace(" 2>/dev/null", "")))
            at += TYPING
            steps += [(at, "o", line) for line in run(command, folder, env) if line or ">" not in command]
            at += READING
    with open(file, "w") as out:
        out.write(draw(steps))


main(*sys.argv[1:])
