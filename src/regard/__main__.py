"""The command `regard`, also as `python -m regard`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules load ends it without a traceback."""
    try:
        from regard.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
