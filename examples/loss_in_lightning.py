"""The corrected loss in a LightningModule of yours: the matrix is a submodule, so it is saved and reduced for you.

python examples/loss_in_lightning.py
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from jcas.core import TransitionMatrix, corrected_cross_entropy, volume


class Segmenter(lightning.LightningModule):
    """A small network trained on noisy masks with a learnt noise matrix."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, num_classes, 3, padding=1))
        self.noise = TransitionMatrix(num_classes)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Cross-entropy through the noise, with the smallest matrix that explains it (VolMin)."""
        image, noisy = batch
        transition = self.noise()
        loss = corrected_cross_entropy(self.net(image).softmax(1), noisy, transition) + 1e-4 * volume(transition)
        print(f"loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser for the network and the matrix."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    images = torch.rand(8, 1, 32, 32)
    noisy = (3 * images[:, 0]).long()  # stands for your masks: (B, H, W) class ids, 255 = ignore
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Segmenter(num_classes=3)
    trainer.fit(model, DataLoader(TensorDataset(images, noisy), batch_size=2))
    print("learnt matrix:", [[round(value, 3) for value in row] for row in model.noise().tolist()])
