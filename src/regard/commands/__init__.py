"""Commands of the command line, one module each; `regard.cli` parses their options."""
