"""Runs all cases, or those whose names match the argument, one after the other."""

import json
import re
import sys
import time
import traceback

import harness
import items  # noqa: F401  each adds its cases
import queries  # noqa: F401
import changefeed  # noqa: F401
import tokens  # noqa: F401
import together  # noqa: F401

only = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
for name, function in harness.cases:
    if not only.search(name):
        continue
    began, error = time.monotonic(), ""
    try:
        function()
    except Exception:
        error = traceback.format_exc()
    print(json.dumps({"name": name, "error": error, "milliseconds": int((time.monotonic() - began) * 1000)}), flush=True)
