"""batchd as another loader of the benchmark. options.socket names the daemon; dataset, if set, replaces the image
folder."""


class Batchd:
    def __init__(self, o):
        import batchd

        self.version = f"batchd {batchd.__version__}"
        self.loader = batchd.DataLoader(
            getattr(o, "dataset", None) or f"imagefolder:{o.data}",
            batch_size=o.batch_size,
            shuffle=o.transform != "val224",
            seed=0,
            transform=o.transform,
            decode=getattr(o, "decode", "full"),
            rank=0,
            world_size=1,
            job=o.job,
            socket=o.socket,
        )

    def epoch(self, e):
        self.loader.set_epoch(e)
        yield from self.loader
