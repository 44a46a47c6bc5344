"""Linear regression over more rows than are worth keeping."""

from __future__ import annotations

import torch
from torch import Tensor


class LeastSquares:
    """y = W x by ridge regression, for rows that come in parts. ridge: of each input, relative to its mean square."""

    def __init__(self, ridge: float) -> None:
        self._ridge = ridge
        self._xx = self._xy = torch.zeros(())
        self._num_rows = 0

    def add(self, x: Tensor, y: Tensor) -> None:
        """x [rows, inputs], y [rows, outputs]."""
        self._xx = self._xx + x.T @ x
        self._xy = self._xy + x.T @ y
        self._num_rows += len(x)

    @property
    def input_sizes(self) -> Tensor:
        """Root mean square of each input."""
        return (self._xx.diagonal() / max(self._num_rows, 1)).sqrt().clamp_min(1e-6)

    def solve(self) -> Tensor:
        """W, float32 [outputs, inputs]."""
        scale: Tensor = 1 / (self.input_sizes * max(self._num_rows, 1) ** 0.5)
        scaled = scale[:, None] * self._xx * scale + self._ridge * torch.eye(len(scale))
        solved: Tensor = torch.linalg.solve(scaled.double(), (scale[:, None] * self._xy).double())
        return scale * solved.T.float()

    def solve_in(self, rank: int) -> tuple[Tensor, Tensor]:
        """W as a product [outputs, rank] x [rank, inputs], the best one for these rows (reduced-rank regression), with
        columns and rows of like size."""
        full = self.solve()
        told = full @ self._xx @ full.T / max(self._num_rows, 1)
        directions = torch.linalg.eigh(told).eigenvectors[:, -rank:]
        inner = directions.T @ full
        balance = (inner.norm() / directions.norm()).sqrt()
        return directions * balance, inner / balance
