"""``python -m polyformer`` is the command line."""

from polyformer.cli import main

if __name__ == "__main__":
    main()
