"""`python -m belljar`"""

import sys

from belljar.surfaces.cli.main import main

sys.exit(main())
