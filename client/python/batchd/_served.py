"""The trainer's side of a served data set: batches of any structure as views of a slot."""

import ctypes
import sys

import numpy

from . import _arrays, _lib, _tree

_COPIED = 4096  # bytes: smaller arrays are copied, so that lists of labels hold no slots
_KEPT = 64  # layouts remembered


class Reader:
    """Makes the batches of one DataLoader."""

    def __init__(self, loader):
        i = loader._info
        self._torch = sys.modules.get("torch") if loader._arrays.name == "torch" else None
        self._n_bytes = loader._bytes_of(i.shape, i.n_dims, i.dtype)
        self._slot_class = _arrays.slot_class(self._n_bytes)
        self._table = (_lib.Array * _lib.MAX_ARRAYS)()
        self._text, self._n_text = ctypes.c_void_p(), ctypes.c_size_t()
        self._layouts = {}

    def give(self, loader):
        """The batch in the loader's struct."""
        s = loader._struct
        n = _lib.arrays(
            s.handle,
            loader._struct_at,
            self._table,
            _lib.MAX_ARRAYS,
            ctypes.byref(self._text),
            ctypes.byref(self._n_text),
        )
        if n < 0:
            raise _lib.failure(n, _lib.error(s.handle))
        build, leaves = self._layout(s.data, n)
        if loader._cuda is not None:
            return self._give_on_gpu(loader, s, build, leaves)
        memory = self._slot_class.from_address(s.data)
        _arrays.lend(memory, s.handle, s)
        held = loader._must_copy(any(size > _COPIED for _, _, _, size, _ in leaves))
        return build(lambda number, kind: self._make(memory, leaves[number], kind, held))

    def _give_on_gpu(self, loader, s, build, leaves):
        """Tensors on the GPU; arrays that the producer gave as numpy's are copied to numpy arrays."""
        at, numpy_memory = s.data, ctypes.c_char * self._n_bytes

        def make(number, kind):
            dtype, shape, offset, size, name = leaves[number]
            if kind == "n":
                return numpy.ndarray(shape, dtype, numpy_memory.from_address(at), offset).copy()
            return give(self._table[number], shape, offset, name)

        try:
            with loader._cuda.arrays(s, loader._copy) as give:
                return build(make)
        finally:
            s.generation = 0

    def _layout(self, at, n):
        """The layout of a batch with this head; most batches of a producer have the same."""
        head = ctypes.string_at(at, self._text.value - at + self._n_text.value)
        layout = self._layouts.get(head)
        if layout is None:
            leaves = []
            for a in self._table[:n]:
                name = _tree.DTYPES[a.dtype]
                leaves.append(
                    (
                        numpy.dtype(_tree.CARRIERS.get(name, name)),
                        tuple(a.shape[: a.n_dims]),
                        (a.data or at) - at,
                        a.n_bytes,
                        name,
                    )
                )
            layout = _tree.builder(head[len(head) - self._n_text.value :]), leaves
            if len(self._layouts) >= _KEPT:
                self._layouts.clear()
            self._layouts[head] = layout
        return layout

    def _make(self, memory, leaf, kind, held):
        dtype, shape, offset, size, name = leaf
        array = numpy.ndarray(shape, dtype, memory, offset)
        if held or size <= _COPIED:
            array = array.copy()
        if self._torch is None or kind == "n":
            if name in _tree.CARRIERS and kind == "a":
                raise TypeError(f"a batch holds {name}, which numpy does not know: use arrays='torch'")
            return array
        tensor = self._torch.from_numpy(array)
        return tensor.view(getattr(self._torch, name)) if name in _tree.CARRIERS else tensor


def check_options(given):
    """Refuses options that only the producer can decide; given: {name: whether the caller gave it}."""
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f"{name} is the producer's business: give it to what batchd.serve is called with, and leave it out here"
            )
