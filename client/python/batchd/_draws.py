"""torch's random samplers (RandomSampler, WeightedRandomSampler, SubsetRandomSampler) under a checkpoint.

They draw an epoch's order from a generator and keep nothing of it, so an epoch that goes on in its middle needs the
generator's state from before its draws. It is in state_dict() as text. A sampler without a generator of its own draws
from torch's global one, all that an epoch takes with its first index. Its state is put back only for these draws: the
global generator is the script's to save and restore."""

import base64
import itertools
import sys


def _drawing(batch_sampler):
    """The sampler of torch's, in a batch_sampler, that makes new draws in each epoch; None: there is none."""
    for found in (getattr(batch_sampler, "sampler", None), batch_sampler):
        found = getattr(found, "_sampler", found)  # behind the loader's own face
        for base in type(found).__mro__:
            if base.__module__ == "torch.utils.data.sampler" and hasattr(found, "generator"):
                return None if hasattr(found, "set_epoch") else found
    return None


def _text(state):
    return base64.b64encode(state.numpy().tobytes()).decode()


def before(batch_sampler):
    """The state from which the next iteration draws, as text; None: it draws nothing that torch knows."""
    sampler = _drawing(batch_sampler)
    if sampler is None:
        return None
    generator = sampler.generator or sys.modules["torch"].default_generator
    return _text(generator.get_state())


def _generators(state):
    """torch's form of that text."""
    torch = sys.modules["torch"]
    try:
        kept = torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8)
        torch.Generator().set_state(kept)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"the state's field 'sampler' is not the state of a generator of torch's: {error}") from None
    return kept


def go_on(batch_sampler, state):
    """Behind an epoch's end: a sampler's own generator draws the next epoch. Whether it has one."""
    sampler = _drawing(batch_sampler)
    if sampler is None or sampler.generator is None:
        return False
    sampler.generator.set_state(_generators(state))
    return True


def iterate(batch_sampler, state):
    """An iteration that draws what it drew from that state; None: whatever it draws now."""
    sampler = _drawing(batch_sampler)
    if state is None or sampler is None:
        return iter(batch_sampler)
    kept = _generators(state)
    if sampler.generator is not None:
        sampler.generator.set_state(kept)
        return iter(batch_sampler)
    torch = sys.modules["torch"]
    own = torch.get_rng_state()
    torch.set_rng_state(kept)
    try:
        batches = iter(batch_sampler)
        return itertools.chain(list(itertools.islice(batches, 1)), batches)
    finally:
        torch.set_rng_state(own)
