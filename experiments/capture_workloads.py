"""The training steps that `capture_traces.py` records: a small CNN, a small GPT, and that GPT in DDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

TEXT_LENGTH: Final = 64
VOCABULARY: Final = 256
BUCKET_MIB: Final = 2
EXTRA_PRODUCTS: Final = 6

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is captured: `prepare(rank)` builds model, data and optimizer and returns one training step."""

    name: str
    title: str
    world_size: int
    prepare: Callable[[int], Step]


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with BatchNorm; a 1×1 convolution on the shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, outputs, h / stride, w / stride)"""
        return functional.relu(self.body(images) + self.shortcut(images))


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Random uint8 images; each is cropped, scaled, flipped and normalised when the loader asks for it."""

    def __init__(self, count: int) -> None:
        self.pixels = torch.randint(256, (count, 3, 64, 64), dtype=torch.uint8)
        self.labels = torch.randint(10, (count,))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        top, left, size, flip = (torch.rand(4) * torch.tensor([16, 16, 17, 2])).int().tolist()
        crop = self.pixels[row, :, top : top + 32 + size, left : left + 32 + size].float()
        image = functional.interpolate(crop[None], (32, 32), mode="bilinear", antialias=True)[0]
        image = image.flip(2) if flip else image
        return image.sub_(127.5).div_(64.0), self.labels[row]


class SmallGPT(nn.Module):
    """A GPT over bytes: embeddings, pre-norm blocks of 4 heads with causal attention, an output layer."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(TEXT_LENGTH, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        # Not a buffer: DDP would broadcast it in every forward pass.
        self.mask = nn.Transformer.generate_square_subsequent_mask(TEXT_LENGTH)

    def forward(self, text: Tensor) -> Tensor:
        """(batch, length) int64 -> (batch, length, vocabulary)"""
        hidden = self.tokens(text) + self.positions
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        return self.output(self.norm(hidden))


def random_text(batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows of a random byte sequence, and the byte that follows each byte of them."""
    text = torch.randint(VOCABULARY, (1 << 16,))
    while True:
        starts = torch.randint(len(text) - TEXT_LENGTH, (batch, 1))
        window = text[starts + torch.arange(TEXT_LENGTH + 1)]
        yield window[:, :-1], window[:, 1:]


def epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    """Batches for ever, epoch after epoch."""
    while True:
        yield from loader


def do_nothing() -> None:
    """No extra work."""


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    extra_work: Step = do_nothing,
) -> Step:
    """One step as users write it, its phases marked; `extra_work` is done inside the forward phase."""

    def step() -> None:
        with record_function("data loading"):
            inputs, labels = next(batches)
        with record_function("forward"):
            extra_work()
            loss = functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    return step


def prepare_cnn(rank: int) -> Step:
    """11 convolutions on 32×32 images, SGD with momentum, a DataLoader in the training process."""
    shapes = ((16, 16, 1), (16, 32, 2), (32, 64, 2), (64, 64, 1))
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(ResidualBlock(*shape) for shape in shapes),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(Images(2048), batch_size=24, shuffle=True)
    return training_step(model, optimizer, epochs(loader))


def prepare_transformer(rank: int) -> Step:
    """A GPT of 3 layers, width 128, with AdamW as torch runs it on a CPU: one parameter after the other."""
    model = SmallGPT(layers=3, width=128)
    return training_step(model, torch.optim.AdamW(model.parameters(), lr=3e-4), random_text(batch=8))


def prepare_ddp(rank: int, straggler: int | None = None) -> Step:
    """A GPT of 3 layers, width 256, in DistributedDataParallel; rank `straggler` has more to compute."""
    model = SmallGPT(layers=3, width=256)
    mark_gradient_wait(model.output.weight)
    parallel = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    matrices = torch.randn(1, 512, 512)  # as batch of one: bmm occurs nowhere else, so it can be selected by name

    def extra_work() -> None:
        with record_function("extra work"):
            for _ in range(EXTRA_PRODUCTS):
                torch.bmm(matrices, matrices)

    return training_step(parallel, optimizer, random_text(batch=2), extra_work if rank == straggler else do_nothing)


def prepare_ddp_straggler(rank: int) -> Step:
    """The same, with extra matrix products in every forward phase of rank 1."""
    return prepare_ddp(rank, straggler=1)


def mark_gradient_wait(parameter: nn.Parameter) -> None:
    """Put a range around the place where DDP waits for its all-reduces; the profiler records none there.

    DDP waits in a callback that it queues to run when backward is through, once its last bucket is full. A
    callback queued when the gradient of `parameter` is there comes before it and opens the range; it queues
    another, which comes after it and closes the range.
    """
    queue = Variable._execution_engine.queue_callback

    def open_range() -> None:
        waiting = record_function("makespan::wait ddp gradients")
        waiting.__enter__()
        queue(lambda: waiting.__exit__(None, None, None))

    parameter.register_post_accumulate_grad_hook(lambda _: queue(open_range))


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("cnn_step", "small ResNet, SGD, one process", 1, prepare_cnn),
        Workload("transformer_step", "small GPT, AdamW, one process", 1, prepare_transformer),
        Workload("ddp_gloo_2ranks", "small GPT, DDP over gloo", 2, prepare_ddp),
        Workload("ddp_gloo_2ranks_straggler", "the same, rank 1 with more work", 2, prepare_ddp_straggler),
    )
}
