"""setuptools as the build backend, in a copy of this folder: pip builds a package where its source is, and would leave
build/ and batchd.egg-info here."""

import functools
import os
import shutil
import tempfile

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401, F403


def elsewhere(hook):
    @functools.wraps(hook)
    def run(*args, **kwargs):
        here = os.getcwd()
        with tempfile.TemporaryDirectory(prefix="batchd-build-") as place:
            source = os.path.join(place, "python")
            shutil.copytree(here, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            os.chdir(source)
            try:
                return hook(*args, **kwargs)
            finally:
                os.chdir(here)

    return run


# An editable installation (pip install -e) refers to this folder and keeps its egg-info here.
get_requires_for_build_wheel = elsewhere(build_meta.get_requires_for_build_wheel)
prepare_metadata_for_build_wheel = elsewhere(build_meta.prepare_metadata_for_build_wheel)
build_wheel = elsewhere(build_meta.build_wheel)
get_requires_for_build_sdist = elsewhere(build_meta.get_requires_for_build_sdist)
build_sdist = elsewhere(build_meta.build_sdist)
