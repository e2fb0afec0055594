"""For Hugging Face Accelerate, and so transformers' Trainer: what Accelerate's own loaders tell its GradientState.

`accumulate` synchronises at an epoch's end, and `gather_for_metrics` leaves padding out, both by the state of the
loader that is being iterated. Accelerate cuts padding off the end of the gathered rows. Its own loaders deal whole
batches out in turn, so padding lies there; here, as with torch's DistributedSampler, it lies at the end of some ranks'
parts. So gather_for_metrics is given only the rows that are no padding. Trainer repeats each batch's loss to the size of
a full batch, and relies on Accelerate to shorten that of the last one, too.
"""

import functools
import sys
import types
import weakref


class Skipped:
    """A loader without the first batches of the next epoch, for Accelerate's skip_first_batches."""

    def __init__(self, loader, n):
        self._loader, self._n = loader, n

    def __iter__(self):
        return self._loader._iterate_from(self._n)

    def __len__(self):
        return max(0, len(self._loader) - self._n)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class Iterated:
    """One iteration, as GradientState sees it."""

    remainder = 0  # nothing for Accelerate to cut off

    def __init__(self, world_size, batch_size):
        self.end_of_dataloader = False
        self.world_size, self.batch_size = world_size, batch_size
        self.n_rows = self.n_padding = 0

    def gave(self, batch, last):
        """The caller is about to get this batch."""
        self.end_of_dataloader, self.n_rows, self.n_padding = last, batch.n_rows, batch.n_padding


def begin(iterator, ours, world_size, batch_size):
    """Tells GradientState that this iteration begins, and later, when the iterator is gone, that it has ended. None if
    the script has made no Accelerator."""
    state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    if state is None or not getattr(state, "_shared_state", None) or not hasattr(state, "_add_dataloader"):
        return None
    adapt(ours)
    iterated = Iterated(world_size, batch_size)
    state()._add_dataloader(iterated)
    # GradientState keeps weak references, but does not notice when an object has gone.
    iterated.end = weakref.finalize(iterator, _remove, state, iterated)
    return iterated


def _remove(state, iterated):
    if getattr(state, "_shared_state", None):
        state()._remove_dataloader(iterated)


def adapt(ours):
    """Makes Accelerate's own methods recognise loaders of this class, if a script has imported it; other loaders they
    treat as before."""
    accelerator = getattr(sys.modules.get("accelerate"), "Accelerator", None)
    if accelerator is None or hasattr(accelerator.gather_for_metrics, "_knows_batchd"):
        return

    def replace(name, make):
        original = getattr(accelerator, name)
        method = functools.wraps(original)(make(original))
        method._knows_batchd = True
        setattr(accelerator, name, method)

    def prepare_data_loader(original):
        def method(self, data_loader, *args, **more):
            return data_loader if isinstance(data_loader, ours) else original(self, data_loader, *args, **more)

        return method

    def skip_first_batches(original):
        def method(self, dataloader, num_batches=0):
            return (
                Skipped(dataloader, num_batches)
                if isinstance(dataloader, ours)
                else original(self, dataloader, num_batches)
            )

        return method

    _take_over(accelerator)
    replace("prepare_data_loader", prepare_data_loader)
    replace("skip_first_batches", skip_first_batches)


_gathered = {}  # {a class: its own gather_for_metrics}


def _gather_for_metrics(self, input_data, *args, **more):
    """The code of Accelerator.gather_for_metrics from then on; its globals are Accelerate's."""
    from batchd import _accelerate

    return _accelerate.gather_for_metrics(self, input_data, *args, **more)


def _take_over(accelerator):
    """Trainer.__init__ keeps a bound gather_for_metrics, and a loader may be made after it. So the method stays the same
    object, and its code changes."""
    method = accelerator.gather_for_metrics
    _gathered[accelerator] = types.FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    _gathered[accelerator].__kwdefaults__ = method.__kwdefaults__
    method.__code__ = _gather_for_metrics.__code__
    method.__defaults__ = method.__kwdefaults__ = None
    method.__wrapped__ = _gathered[accelerator]  # its signature, which Trainer looks at
    method._knows_batchd = True


def gather_for_metrics(self, input_data, *args, **more):
    original = next(_gathered[base] for base in type(self).__mro__ if base in _gathered)
    data = original(self, input_data, *args, **more)
    iterated = self.gradient_state.active_dataloader
    if isinstance(iterated, Iterated) and iterated.end_of_dataloader and iterated.world_size == self.num_processes:
        return _without_padding(self, iterated, data)
    return data


def _without_padding(accelerator, iterated, data):
    """The rows of all ranks, in the ranks' order, without the rows that only repeat samples. Data that is neither one item
    per row nor one per row of a full batch stays as it is."""
    torch = sys.modules["torch"]
    counts = accelerator.gather(
        torch.tensor([[iterated.n_rows, iterated.n_padding]], device=accelerator.device)
    ).tolist()

    def keep(n):
        """Which of n items are kept; None: n is not their number."""
        for sizes in ([n_rows for n_rows, _ in counts], [iterated.batch_size] * len(counts)):
            if sum(sizes) == n:
                kept = [n_rows - n_padding for n_rows, n_padding in counts]
                return [row < most for most, size in zip(kept, sizes) for row in range(size)]
        return None

    if isinstance(data, list) and (kept := keep(len(data))):  # a list of objects
        return [item for item, is_kept in zip(data, kept) if is_kept]

    def pick(tensor):
        kept = keep(len(tensor)) if tensor.ndim else None
        return tensor if kept is None or all(kept) else tensor[torch.tensor(kept, device=tensor.device)]

    return sys.modules["accelerate.utils"].recursively_apply(pick, data)
