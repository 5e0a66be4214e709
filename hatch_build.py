"""Build hook: compiles the native CPU engine where a C++ compiler is found.

Without a compiler the package is installed without the engine, and models run on torch.
"""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "src/regard/native"


class NativeEngineHook(BuildHookInterface):
    """Adds the compiled engine to the wheel, which then belongs to one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the engine before the files are collected."""
        path = Path(self.root, FOLDER, "compiler.py")
        spec = importlib.util.spec_from_file_location("regard_native_compiler", path)
        assert spec
        assert spec.loader
        compiler = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compiler)
        try:
            library = compiler.compile_engine()
        except compiler.CompileError as error:
            self.app.display_warning(f"The native CPU engine is not built: {error}")
            return
        build_data["artifacts"].append(f"{FOLDER}/{library.name}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
