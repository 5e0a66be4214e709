"""`python -m regard.native` compiles the native engine."""

import sys

from regard.native.compiler import CompileError, compile_engine

try:
    print(compile_engine())
except CompileError as error:
    sys.exit(f"regard: {error}")
