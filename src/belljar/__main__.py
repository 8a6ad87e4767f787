"""`python -m belljar`"""

import sys

from belljar.surfaces.cli import main

sys.exit(main())
