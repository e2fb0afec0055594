"""The C library's options, from a DataLoader's arguments."""

import ctypes
import os
import sys

from . import _check, _draft, _image_mode, _lib, _uses, _views
from ._ranks import node_ranks, ranks


class Options:
    """The part of a DataLoader that checks its arguments and writes the C library's options."""

    def _fill_options(self, asked):
        o = self._options = _lib.Options()
        _lib.options_init(ctypes.byref(o))
        o.mode = _check.choice("mode", asked.mode, _lib.MODES)
        told = asked.rank is not None or asked.world_size is not None
        rank, world_size = ranks(asked.rank, asked.world_size, _lib.MODES[o.mode])
        o.node_rank, o.node_world_size = node_ranks(1 if told else world_size)
        o.dataset = _check.text("dataset", self._spec)
        text, self._form = _views.read(asked.transform)
        default = _uses.default_transform(self._spec) if self._has_pictures else None
        text = _draft.into(_image_mode.into(text, asked.image_mode, default), asked.decode, default)
        o.transform = _check.text("transform", text)
        o.mix = _check.text("mix", asked.mix)
        if asked.job == "":
            raise ValueError("job is empty: name it, or leave it out (None) for a name of its own")
        o.job = _check.text("job", asked.job if asked.job is None else str(asked.job))
        o.socket = _check.text("socket", asked.socket)
        o.dtype = _check.choice("dtype", _check.dtype_name(asked.dtype), _lib.DTYPES)
        o.layout = _check.choice("layout", asked.layout, _lib.LAYOUTS)
        o.batch_size = self.batch_size
        o.rank = _check.number("rank", rank, -1, 2**31 - 1)
        o.world_size = _check.number("world_size", world_size, 1, 2**32 - 1)
        o.num_workers = _check.number("num_workers", asked.num_workers or 0, 0, 2**32 - 1)
        o.n_slots = _check.number("n_slots", asked.n_slots or 0, 0, 2**32 - 1)
        o.seed = _check.number("seed", asked.seed)
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0
        o.incarnation = _check.number("incarnation", int(restarts) if asked.incarnation is None else asked.incarnation)
        o.own_batches, o.writable, o.autostart = (
            self.batch_sampler is not None,
            bool(asked.writable),
            bool(asked.autostart),
        )
        o.shuffle, o.drop_last, o.apply_exif = (
            _check.shuffle(asked.shuffle),
            self.drop_last and not o.own_batches,
            0 if asked.apply_exif is None else 1 if asked.apply_exif else -1,
        )
        o.repeats = _check.repeats(asked.repeats)
        o.epoch_rows = 0 if asked.epoch_rows is None else _check.number("epoch_rows", asked.epoch_rows, 1, 2**63 - 1)
        if asked.producer_timeout is not None:
            o.producer_timeout_ms = _check.milliseconds("producer_timeout", asked.producer_timeout, 1)
        if self._wish.wanted is not None:
            names = [_check.text("fields", name) for name in self._wish.wanted]
            o.fields, o.n_fields = (ctypes.c_char_p * len(names))(*names), len(names)
        o.reconnect_ms = _check.milliseconds("reconnect", asked.reconnect or 0)
        o.device = f"cuda:{self._cuda.ordinal}".encode() if self._cuda is not None else None
        o.program = os.path.basename(
            sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
        ).encode()[:64]

    def _fill_share_options(self, policy, join, group_batch_size):
        o = self._options
        share, is_open = _lib.MODES[o.mode] == "share", o.world_size == 1
        for name, value in (("policy", policy), ("join", join), ("group_batch_size", group_batch_size)):
            if value is not None and not share:
                raise ValueError(f"{name} goes with mode='share'")
        if join is not None and not is_open:
            raise ValueError(
                "join is for trainers that come to a group at work: leave world_size out. One of known size begins when all "
                "of it are there"
            )
        o.policy = _check.choice("policy", policy, _lib.POLICIES) if policy is not None else 0
        o.group_batch_size = _check.number("group_batch_size", group_batch_size or 0, 0, 2**32 - 1)
        self._join = _check.choice("join", join, _lib.JOINS) if join is not None else None  # the user's argument
        self._to_join = (
            (self._join if join is not None else _lib.JOINS.index("start")) if share and is_open else None
        )  # still to be done
