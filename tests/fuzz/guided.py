"""Runs one target under atheris, in its own process, since libFuzzer ends the process.

python -m tests.fuzz.guided TARGET [options of libFuzzer] [CORPUS]
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings

import atheris

with atheris.instrument_imports(include=["belljar"]):
    import belljar.link.decoder
    import belljar.policy

    for module in pkgutil.iter_modules(belljar.policy.__path__, "belljar.policy."):
        importlib.import_module(module.name)

    from . import hostile as hostile

from .targets import TARGETS


def main() -> None:
    warnings.simplefilter("error")
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
