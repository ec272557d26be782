# SPDX-License-Identifier: Apache-2.0
"""Conan's recipe, for a clone: `conan create .` (docs/engine.md, Build)."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import load


class Zoomr(ConanFile):
    name = "zoomr"
    description = "KV-cache policies for language-model decoding"
    license = "Apache-2.0"
    topics = ("llm", "kv-cache", "attention", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "CMakeLists.txt", "LICENSE", "include/*"
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "CMakeLists.txt"))
        self.version = re.search(r"project[(]zoomr VERSION ([0-9.]+)", text)[1]

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH", "COMPILED"):
            toolchain.cache_variables[f"ZOOMR_{part}"] = False
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_info(self):
        # Its own configuration is found, by CMake and by pkg-config, as after any other installation.
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "zoomr")]
