"""``python -m loxley``: the ``loxley`` command that the wheel brings along, of this very environment."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Iterator, NoReturn


def main() -> NoReturn:
    """Becomes the program: signals, exit codes and standard streams are its own from here on."""
    program = find_program()
    if program is None:
        sys.exit(
            "the program `loxley` is not beside this package: it comes with the wheel."
            " Install that (`pip install loxley`), or build it: `cargo install --path crates/cli`"
        )
    os.execv(program, [program, *sys.argv[1:]])


def find_program() -> str | None:
    """Where an installer put the program."""
    found = (os.path.join(folder, "loxley") for folder in _folders())
    return next(filter(_is_program, found), None)


def _folders() -> Iterator[str]:
    yield sysconfig.get_path("scripts")
    # As `pip install --user`, `--target` and `--prefix` have it.
    yield sysconfig.get_path("scripts", f"{os.name}_user")
    package = os.path.dirname(os.path.abspath(__file__))
    for levels in (1, 4):
        root = os.path.join(package, *[os.pardir] * levels)
        yield os.path.normpath(os.path.join(root, "bin"))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


if __name__ == "__main__":
    main()
