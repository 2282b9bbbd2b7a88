"""The testbed's models: compute of about 100 ms a step on one core, gradients of 5 to 27 MB."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from capture_workloads import ResidualBlock, SmallGPT


class Classifier(nn.Module):
    """ResNet-18 in shape, a quarter as wide as usual."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        inputs = width
        for stage in range(4):
            outputs = width << stage
            layers += [ResidualBlock(inputs, outputs, 2 if stage else 1), ResidualBlock(outputs, outputs, 1)]
            inputs = outputs
        self.features, self.output = nn.Sequential(*layers), nn.Linear(inputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, h, w) -> (batch, 10)"""
        return self.output(self.features(images).mean((2, 3)))


def mlp() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """Seven linear layers, 25 MB: large tensors."""
    layers = [part for _ in range(6) for part in (nn.Linear(1024, 1024), nn.ReLU())]
    inputs, labels = torch.randn(256, 1024), torch.randint(10, (256,))
    return nn.Sequential(*layers, nn.Linear(1024, 10)), lambda model: functional.cross_entropy(model(inputs), labels)


def cnn() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """A small ResNet with BatchNorm, 11 MB."""
    inputs, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    return Classifier(), lambda model: functional.cross_entropy(model(inputs), labels)


def gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """A small transformer, 23 MB."""
    text = torch.randint(256, (4, 65))

    def loss(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return SmallGPT(layers=6, width=256), loss


def thin() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """160 narrow layers, 5 MB in 320 tensors: what small buckets hurt."""
    layers = [part for _ in range(80) for part in (nn.Linear(128, 128), nn.ReLU())]
    inputs, labels = torch.randn(512, 128), torch.randint(10, (512,))
    return nn.Sequential(*layers, nn.Linear(128, 10)), lambda model: functional.cross_entropy(model(inputs), labels)


MODELS = {"mlp": mlp, "cnn": cnn, "gpt": gpt, "thin": thin}
