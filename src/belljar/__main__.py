"""`python -m belljar`"""

import sys

if not sys.flags.safe_path:
    del sys.path[
        0
    ]  # the directory we are called in, a workspace as a rule: its json.py is not for us

from belljar.surfaces.cli.main import main

sys.exit(main())
