"""The feed-forward network: each position by itself, with the same weights for all of them."""

from torch import Tensor, nn


class FeedForwardNet(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂, with dropout after the activation."""

    def __init__(self, d_model: int, hidden_size: int, p: float = 0.1) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, hidden_size)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(p)
        self.fc2 = nn.Linear(hidden_size, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.dropout(self.relu(self.fc1(x))))
