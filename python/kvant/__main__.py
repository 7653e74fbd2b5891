"""The console command `kvant`: the program itself takes this process's place."""
import os
import sys

from ._c import program


def main() -> None:
    """Runs the program with this command's arguments."""
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
