#!/usr/bin/env bash
# python-calamine 0.9.1: a cell in which a formula failed (#N/A, #REF!) is read as "", as an empty cell is; openpyxl
# 3.1.5 gives the error's name. So a column of texts that were looked up elsewhere loses rows without a word.
# Seen: calamine ["kept", "", ""], openpyxl ["kept", "#N/A", None].
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv env
env/bin/pip install --quiet python-calamine==0.9.1 openpyxl==3.1.5
cat > read.py <<'EOF'
import openpyxl
from python_calamine import CalamineWorkbook

book = openpyxl.Workbook()
for place, value in (("A1", "kept"), ("A2", "#N/A"), ("A4", "last")):
    book.active[place] = value
assert book.active["A2"].data_type == "e"
book.save("table.xlsx")
calamine = [row[0] for row in CalamineWorkbook.from_path("table.xlsx").get_sheet_by_index(0).iter_rows()]
one = [row[0].value for row in openpyxl.load_workbook("table.xlsx").active.iter_rows()]
print("calamine", calamine[:3], "openpyxl", one[:3])
assert calamine == ["kept", "", "", "last"]
assert one == ["kept", "#N/A", None, "last"]
EOF
env/bin/python read.py
