"""Batches on a GPU as torch tensors; _cuda_other.py has other libraries' arrays.

Ordinary tensors are torch's own memory, filled by one kernel on torch's current stream; the batch's slot goes back by
itself when that is done. Raw tensors are the daemon's memory, which goes back when the last tensor over it is gone and
the work queued until then is done. Nothing here waits for the GPU.
"""

import contextlib
import ctypes
import math
import weakref

from . import _dlpack, _into, _lib
from ._warn import warn


class Delivery:
    """A loader's maker of tensors. `ordinal`: the GPU's number, the same for torch and the driver."""

    def __init__(self, torch, ordinal, raw):
        self._torch, self.ordinal, self.raw = torch, ordinal, raw
        self.device = self._device(ordinal)
        self._constants = None
        self._copies = {}  # {address: weak reference} of copies of raw tensors, in torch's own memory

    # ---- what another library has in torch's place ----

    def _device(self, ordinal):
        return self._torch.device("cuda", ordinal)

    def _stream(self):
        """The driver's handle of the stream that work is queued on."""
        return self._torch.cuda.current_stream(self.device).cuda_stream

    def _type(self, name):
        return getattr(self._torch, name)

    def _new(self, shape, dtype):
        """Memory for work that is queued on the stream."""
        return self._torch.empty(shape, dtype=dtype, device=self.device)

    @staticmethod
    def _at(tensor):
        return tensor.data_ptr()

    def _import(self, struct):
        """The batch as stored, without a copy; the loan is the tensor's."""
        return self._torch.from_dlpack(_dlpack.Export(self._handle, struct, self.ordinal))

    @staticmethod
    def _handle_of(stream):
        return stream.cuda_stream

    @staticmethod
    def _record(tensor, stream):
        """Work on this stream reads a tensor of the library's own memory."""
        tensor.record_stream(stream)

    def _there(self, values):
        """A copy of a numpy array."""
        return self._torch.from_numpy(values).to(self.device)

    @staticmethod
    def _part(whole, first, end, dtype, shape):
        """A view of some of a row of bytes."""
        return whole[first:end].view(dtype).view(shape)

    def check_copy(self):
        """A loop that keeps all slots gets copies."""

    def _cannot_finish(self, reason):
        """The driver does not take libbatchd's kernel."""
        if reason:
            warn(f"images are finished by torch's own operations, in several passes: {reason}; update NVIDIA's driver")

    # ---- batches ----

    def opened(self, handle, info):
        """The C loader is open, perhaps again after the daemon went away."""
        self._handle, self._info = handle, info
        self._shape = tuple(info.shape[: info.n_dims])
        self._dtype = self._type(_lib.DTYPES[info.dtype])
        self._label_shape = tuple(info.label_shape[: info.n_label_dims])
        self._label_dtype = self._type(_lib.DTYPES[info.label_dtype])
        self._exported, self._of_slot = {}, {}
        if info.device_path == _lib.DEVICE_COPY:
            warn(
                f"batches are copied to {self.device} by this process, as it cannot map the daemon's memory there: "
                f"{info.device_reason.decode('utf-8', 'replace')} (`batchctl doctor` says more)",
            )
        if not info.can_finish:
            self._cannot_finish(info.finish_reason.decode("utf-8", "replace"))

    def take(self, struct, mix=None):
        """The batch as (images, labels); its slot goes back after the queued work, or belongs to the images."""
        stream = self._stream()
        at, rows = ctypes.addressof(struct), struct.n_rows
        try:
            labels = self._labels(at, rows, stream, mix)
            if self.raw:
                return self._share(struct), labels
            if not self._info.can_finish:
                return self._finish(struct, mix), labels
            images = self._new((rows,) + self._shape, self._dtype)
            self._check(_lib.cuda_finish(self._handle, at, self._at(images), stream))
        except BaseException:
            _lib.cuda_release(self._handle, struct.slot, struct.generation, stream)  # refused where a tensor has it
            raise
        self._check(_lib.cuda_release(self._handle, struct.slot, struct.generation, stream))
        return images, labels

    def _finish(self, struct, mix):
        """The images by torch's own operations; they own the loan meanwhile."""
        if self._has_numbers():
            stream = self._stream()
            images = self._finish_numbers(ctypes.addressof(struct), 0, stream, mix)
            self._check(_lib.cuda_release(self._handle, struct.slot, struct.generation, stream))
            return images
        return finish(self._torch, self._share(struct), self._dtype, self._planar(), self._normalize(), mix)

    def _finish_numbers(self, at, number, stream, mix):
        """A view of a slot that has numbers; they need only be mixed, or rounded to bfloat16."""
        torch, array = self._torch, _lib.Array()
        self._check(_lib.get_field_at(self._handle, at, number, ctypes.byref(array)))
        stored = self._type(_lib.DTYPES[array.dtype])
        images = self._new(tuple(array.shape[: array.n_dims]), stored)
        self._check(_lib.cuda_array(self._handle, at, ctypes.byref(array), self._at(images), stream))
        if mix is not None:
            images = mixed(torch, images.to(torch.float32), self._planar(), mix)
        return images.to(self._dtype)

    def _labels(self, at, rows, stream, mix):
        """Labels; with a mix soft targets, or labels, partners' labels and weights."""
        if mix is not None and not self.raw and self._info.n_mix_classes:
            targets = self._new((rows, self._info.n_mix_classes), self._type("float32"))
            self._write_targets(at, targets, stream)
            return targets
        labels = self._new((rows,) + self._label_shape, self._label_dtype)
        self._check(_lib.cuda_labels(self._handle, at, self._at(labels), stream))
        if mix is None or self.raw:
            return labels
        return self._pairs(labels, mix)

    def _write_targets(self, at, targets, stream):
        if self._info.can_finish:
            self._check(_lib.cuda_targets(self._handle, at, self._at(targets), stream))
            return
        made = self._torch.empty(targets.shape, dtype=self._torch.float32)
        self._check(_lib.targets(self._handle, at, made.data_ptr()))
        targets.copy_(made)

    def _pairs(self, labels, mix):
        return labels, labels[self._there(mix["partner"].astype("i8"))], self._there(mix["weight"].copy())

    def write(self, struct, images, labels, mix=None):
        """Writes the batch into tensors of the caller's; its slot goes back behind that. A batch that fails stays in
        the struct."""
        torch = self._torch
        stream = self._stream()
        at = ctypes.addressof(struct)
        if labels is not None:
            if mix is None or self.raw:
                self._check(_lib.cuda_labels(self._handle, at, self._at(labels), stream))
            else:
                self._write_targets(at, labels.detach()[: struct.n_rows], stream)
            _into.note(torch, labels)
        if self._info.can_finish:
            self._check(_lib.cuda_finish(self._handle, at, self._at(images), stream))
            _into.note(torch, images)
            generation, struct.generation = struct.generation, 0
            self._check(_lib.cuda_release(self._handle, struct.slot, generation, stream))
            return
        made = self._finish(struct, mix)
        struct.generation = 0  # a tensor had it
        images.detach()[: struct.n_rows].copy_(made)

    def shape_of_view(self, stored):
        """Of a row of a view, as the trainer gets it."""
        return (stored[2], stored[0], stored[1]) if self._planar() and not self.raw else tuple(stored)

    def write_fields(self, struct, targets, mix=None):
        """Queues the work that writes fields into targets of the caller's (_targets.Targets); the batch stays in the
        struct."""
        stream = self._stream()
        at, here = ctypes.addressof(struct), self._info.can_finish or self.raw
        views = [] if here else [k for k, _ in targets.dense if self._info.fields[k].view]
        table = targets.without(views)
        self._check(_lib.into(self._handle, at, table, len(table), stream))
        for k, target in targets.dense:
            if k in views:
                array = _lib.Array()
                self._check(_lib.get_field_at(self._handle, at, k, ctypes.byref(array)))
                made = self._finished_here(at, k, array, stream, mix)
                target.detach()[: struct.n_rows].copy_(made)
            else:
                _into.note(self._torch, target)

    def write_array(self, struct, array, target):
        """Queues the copy of one array of a producer's batch into a target."""
        stream = self._stream()
        code = _lib.cuda_array(self._handle, ctypes.addressof(struct), ctypes.byref(array), self._at(target), stream)
        self._check(code)
        _into.note(self._torch, target)

    def give_back(self, struct):
        """Ends the loan of the batch in the struct after the work that is queued."""
        stream = self._stream()
        generation, struct.generation = struct.generation, 0
        self._check(_lib.cuda_release(self._handle, struct.slot, generation, stream))

    def take_fields(self, struct, arrays, stacks=(), mix=None):
        """({name: tensor}, {begin: tensor}) of the dense fields, given as (number, name, C array): views are finished,
        unless the caller wants them raw. stacks: (begin, end) numbers of views that come as one tensor, and not by name.
        The slot goes back as in take."""
        stream = self._stream()
        at, made, stacked, shared = ctypes.addressof(struct), {}, {}, None
        inside = {k for begin, end in stacks for k in range(begin, end)}
        try:
            for begin, end in stacks:
                stacked[begin] = self._take_stack(
                    at, [(k, array) for k, _, array in arrays if begin <= k < end], stream, mix
                )
            for number, name, array in reversed(arrays):
                if number in inside:
                    continue
                if number == arrays[0][0]:
                    made[name], shared = self._take_first(struct, at, stream, mix)
                elif name == "label" and mix is not None:
                    made[name] = self._labels(at, struct.n_rows, stream, mix)
                else:
                    made[name] = self._take_other(at, number, array, stream, mix)
        except BaseException:
            _lib.cuda_release(self._handle, struct.slot, struct.generation, stream)  # refused where a tensor has it
            raise
        if not shared:
            self._check(_lib.cuda_release(self._handle, struct.slot, struct.generation, stream))
        return made, stacked

    def _made(self, number, array):
        """(dtype, shape) of what the trainer gets of a field."""
        shape = tuple(array.shape[: array.n_dims])
        if not self._info.fields[number].view or self.raw:
            return self._type(_lib.DTYPES[array.dtype]), shape
        from_nhwc = self._planar() and self._info.stored_layout != self._info.layout
        return self._dtype, (shape[0], shape[3], shape[1], shape[2]) if from_nhwc else shape

    def _write_other(self, at, number, array, to, stream):
        """Queues the work that writes a field to an address on the GPU."""
        if self._info.fields[number].view and not self.raw:
            self._check(_lib.cuda_finish_field(self._handle, at, number, to, stream))
        else:
            self._check(_lib.cuda_array(self._handle, at, ctypes.byref(array), to, stream))

    def _finished_here(self, at, number, array, stream, mix):
        """A view where the library has no kernel."""
        if self._has_numbers():
            return self._finish_numbers(at, number, stream, mix)
        torch, f = self._torch, self._info.fields[number]
        raw = self._new(tuple(array.shape[: array.n_dims]), torch.uint8)
        self._check(_lib.cuda_array(self._handle, at, ctypes.byref(array), self._at(raw), stream))
        normalize = (f.mean[: f.shape[2]], f.std[: f.shape[2]]) if f.has_normalize else None
        return finish(torch, raw, self._dtype, self._planar(), normalize, mix)

    def _take_other(self, at, number, array, stream, mix=None):
        """A field that is not the first."""
        if self._info.fields[number].view and not self.raw and not self._info.can_finish:
            return self._finished_here(at, number, array, stream, mix)
        dtype, shape = self._made(number, array)
        tensor = self._new(shape, dtype)
        self._write_other(at, number, array, self._at(tensor), stream)
        return tensor

    def _take_stack(self, at, arrays, stream, mix=None):
        """Views of one shape in one tensor."""
        if not self.raw and not self._info.can_finish:
            return self._torch.stack([self._finished_here(at, k, array, stream, mix) for k, array in arrays])
        dtype, shape = self._made(*arrays[0])
        whole = self._new((len(arrays), *shape), dtype)
        each = math.prod(shape) * dtype.itemsize
        for i, (k, array) in enumerate(arrays):
            self._write_other(at, k, array, self._at(whole) + i * each, stream)
        return whole

    def _take_first(self, struct, at, stream, mix):
        """(tensor, whether the loan is with a tensor)"""
        if self.raw:
            return self._share(struct), True
        if not self._info.can_finish:
            return self._finish(struct, mix), True
        images = self._new((struct.n_rows,) + self._shape, self._dtype)
        self._check(_lib.cuda_finish(self._handle, at, self._at(images), stream))
        return images, False

    @contextlib.contextmanager
    def arrays(self, struct, copy, large):
        """Yields a function that makes a tensor of one array of a producer's batch, to call for each array. Afterwards
        the slot goes back after the queued work, or belongs to the tensors. raw: copy(tensor) is called for each array
        of a batch that takes the last slot. large: the batch is not in a slot, and is copied."""
        raw = self.raw and not large
        stream = self._stream()
        try:
            yield self._share_arrays(struct, copy) if raw else self._copy_arrays(struct, stream)
        except BaseException:
            _lib.cuda_release(self._handle, struct.slot, struct.generation, stream)  # refused where a tensor has it
            raise
        if not raw:
            self._check(_lib.cuda_release(self._handle, struct.slot, struct.generation, stream))

    def _copy_arrays(self, struct, stream):
        at = ctypes.addressof(struct)

        def give(array, shape, offset, name):
            tensor = self._new(shape, self._type(name))
            self._check(_lib.cuda_array(self._handle, at, ctypes.byref(array), self._at(tensor), stream))
            return tensor

        return give

    def _share_arrays(self, struct, copy):
        whole = self._share(struct)
        held = _lib.n_leased(self._handle) >= self._info.window != 2

        def give(array, shape, offset, name):
            tensor = self._part(whole, offset, offset + array.n_bytes, self._type(name), shape)
            if held:
                return copy(tensor)
            self._note(struct, self._at(tensor))
            return tensor

        return give

    def _note(self, struct, address):
        """A raw tensor begins at this address in the slot. Those of the slot's former batches are gone."""
        generation, addresses = self._of_slot.get(struct.slot, (None, ()))
        if generation != struct.generation:
            for old in addresses:
                self._exported.pop(old, None)
            addresses = set()
            self._of_slot[struct.slot] = struct.generation, addresses
        addresses.add(address)
        self._exported[address] = struct.slot, struct.generation

    def copied(self, tensor):
        """A raw tensor came as this copy, because it would have taken the last slot."""
        address, copies = self._at(tensor), self._copies

        def forget(gone):
            if copies.get(address) is gone:
                del copies[address]

        copies[address] = weakref.ref(tensor, forget)
        return tensor

    def add_stream(self, images, stream):
        """More work will read these raw images. `stream`: a torch stream, or a CuPy one; the slot also waits for the work that it is
        given before they are gone. Raises ValueError if they are not this loader's, or for more than 8 streams."""
        if 0 in images.shape:
            return  # torch gives them no address, and no work reads them
        address = self._at(images)
        if address in self._copies:
            self._record(images, stream)
            return
        known = self._exported.get(address)
        if known is None or _lib.cuda_add_stream(self._handle, *known, self._handle_of(stream)) != _lib.OK:
            raise ValueError("these are no raw images of this loader, or more than 8 streams read them")

    def _share(self, struct):
        images = self._import(struct)
        self._note(struct, struct.device_data)
        return images

    def _has_numbers(self):
        """Whether slots have numbers in place of pixels, as the pipeline erases."""
        return self._info.stored_dtype != _lib.DTYPES.index("uint8")

    def _planar(self):
        return _lib.LAYOUTS[self._info.layout] == "NCHW"

    def _normalize(self):
        i = self._info
        n = i.stored_shape[2]
        return (i.mean[:n], i.std[:n]) if any(i.std) else None

    def _check(self, code):
        if code < 0:
            raise _lib.failure(code, _lib.error(self._handle))


def finish(torch, raw, dtype, planar, normalize, mix=None):
    """The finishing kernel with torch's own operations, for a libbatchd without it: uint8 NHWC images as dtype, NCHW if
    planar; the same numbers, in several passes. Divisors are tensors because torch multiplies a tensor on the GPU by
    the reciprocal of a plain number, which rounds differently."""
    images = raw.permute(0, 3, 1, 2) if planar else raw
    if dtype == torch.uint8:
        return images.clone(memory_format=torch.contiguous_format)

    def constant(values):
        t = torch.tensor(values, dtype=torch.float32, device=raw.device)
        return t.view(-1, 1, 1) if planar else t

    images = images.to(torch.float32) / constant([255.0])
    if normalize is not None:
        mean, std = normalize
        images = (images - constant(list(mean))) / constant(list(std))
    if mix is not None:
        images = mixed(torch, images, planar, mix)
    return images.to(dtype).contiguous()


def mixed(torch, images, planar, mix):
    """float32 images, mixed as the table says."""
    made = images.clone()
    for i, row in enumerate(mix.tolist()):
        partner, kind, weight, other, top, bottom, left, right = row
        if kind == 1:
            made[i] = images[i] * weight + images[partner] * other
        elif kind == 2:
            box = (slice(None),) * planar + (slice(top, bottom), slice(left, right))
            made[i][box] = images[partner][box]
    return made
