"""The workspace of the tools' tests serves these too."""

from tests.tools.conftest import place as place
