# SPDX-License-Identifier: Apache-2.0
"""The optimizer of the layers' matrices."""
import math

import torch


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal (Newton-Schulz), for the matrices of the layers (Jordan et al. 2024).

    The decay follows the learning rate only at the very end: heads that nothing needs must fade, or they read what a
    mask may hide later (every direction gets a full step, so noise keeps them alive)."""

    def __init__(self, matrices, lr, decay):
        super().__init__(matrices, dict(lr=lr, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                momentum = self.state[w].setdefault("momentum", torch.zeros_like(w))
                momentum.mul_(0.95).add_(w.grad)
                x = w.grad + 0.95 * momentum
                x = (x if x.shape[0] <= x.shape[1] else x.t()) / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.t()
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x if x.shape == w.shape else x.t()
                w.mul_(1 - group["decay"]).add_(x, alpha=-group["lr"] * 0.2 * math.sqrt(max(w.shape)))
