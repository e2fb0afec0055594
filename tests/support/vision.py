"""torchvision, where its transforms are available; run as a program: exit code 0 if they are."""

import sys
import types


def import_torchvision():
    """torchvision's import insists on compiled operators of the same torch build, which the registries do not have for
    a torch without CUDA. The transforms need none of them. Raises ImportError where torchvision is missing."""
    try:
        import torchvision.transforms.v2
    except RuntimeError:
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules["torchvision._meta_registrations"] = types.ModuleType("torchvision._meta_registrations")
        import torchvision.transforms.v2
    return torchvision


if __name__ == "__main__":
    import_torchvision()
