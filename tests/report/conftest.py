"""Makes `report_world` importable from the tests beside it, whichever way pytest imports them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
