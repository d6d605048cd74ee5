"""A small convolutional network over time, trained in PyTorch: 119 samples of 6 axes to one of five gestures."""

from __future__ import annotations

import sys

import numpy as np
import torch
from recordings import SAMPLES, Floats, Labels, Recordings
from torch import nn

EPOCHS, BATCHES = 200, 4


class Gesture(nn.Module):
    """Three convolutions that each halve the time, the mean over what is left, and a sum per gesture."""

    def __init__(self, gestures: int = 5) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(6, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(16, 24, 5, stride=2, padding=2), nn.BatchNorm1d(24), nn.ReLU())
        self.third = nn.Sequential(nn.Conv1d(24, 32, 3, stride=2, padding=1), nn.BatchNorm1d(32), nn.ReLU())
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(32, gestures)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """[n, 119, 6] as the sensor gives them."""
        x = self.third(self.second(self.first(samples.transpose(1, 2))))
        return torch.softmax(self.last(self.drop(x.mean(2))), 1) if not self.training else self.last(self.drop(x.mean(2)))


def trained(data: Recordings, seed: int = 1) -> Gesture:
    """With variations of the recordings: stronger, weaker, earlier, later, noisier."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Gesture(len(data.names))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * BATCHES)
    model.train()
    for epoch in range(EPOCHS):
        if epoch % 50 == 0:
            print(f"  epoch {epoch} of {EPOCHS}", file=sys.stderr, flush=True)
        for batch in np.array_split(rng.permutation(len(data.train)), BATCHES):
            varied = torch.from_numpy(_varied(data.train[batch], rng))
            loss = nn.functional.cross_entropy(model(varied), torch.from_numpy(data.train_labels[batch]), label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    return model


def _varied(recordings: Floats, rng: np.random.Generator) -> Floats:
    count = len(recordings)
    varied = recordings * rng.uniform(0.8, 1.25, (count, 1, 1)) * rng.uniform(0.9, 1.1, (count, 1, 6))
    varied += rng.normal(0, 0.01, varied.shape)
    shifted = []
    for one, by in zip(varied, rng.integers(-8, 9, count), strict=True):
        wider = np.pad(one, ((max(by, 0), max(-by, 0)), (0, 0)), mode="edge")
        shifted.append(wider[max(-by, 0) : max(-by, 0) + SAMPLES])
    return np.asarray(shifted, np.float32)


def correct(model: Gesture, recordings: Floats, labels: Labels) -> int:
    with torch.no_grad():
        return int((model(torch.from_numpy(recordings)).argmax(1).numpy() == labels).sum())
