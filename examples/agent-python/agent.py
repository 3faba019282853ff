#!/usr/bin/env python3
"""An agent in Python. It reads a task as JSON from stdin and writes a result as JSON to stdout.

It runs in the job's workspace, whose files are committed and delivered. What it writes to stderr
is kept as the node's log. See ../README.md.
"""
import json
import os
import sys


def work(task):
    panel = task.get("panel")
    if panel:
        options = panel.get("options") or ["yes", "no"]
        choice = options[sum(panel["question"].encode()) % len(options)]
        return {"outcome": "done", "choice": choice, "summary": f"The answer is {choice}."}
    if "ask me" in task["objective"].lower() and not task.get("inputs"):
        return {"outcome": "blocked", "reason": "The objective says to ask: what should the report say?"}
    lines = ["# Report", "", task["objective"]]
    lines += [f"\nFrom {p['node']}: {p['summary']}" for p in task.get("predecessors", [])]
    lines += [f"\nYou added: {text}" for text in task.get("inputs", [])]
    with open("report.new", "w", encoding="utf-8") as report:
        report.write("\n".join(lines) + "\n")
    os.replace("report.new", "report.md")
    print("wrote report.md", file=sys.stderr)
    return {"outcome": "done", "summary": "Wrote report.md."}


json.dump(work(json.load(sys.stdin)), sys.stdout)
