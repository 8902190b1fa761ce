"""Both corrected losses and affinity reasoning in a plain torch loop: your network, your optimiser, our four lines.

python examples/loss_in_your_loop.py
"""

import torch
from monai.networks.nets import UNet

from jcas.core import (
    Affinity,
    TransitionMatrix,
    class_to_affinity,
    corrected_affinity_loss,
    corrected_cross_entropy,
    refine,
)

torch.manual_seed(0)
CLASSES, FEATURES = 3, 16
# One network, two outputs: the first channels are class logits, the others pixel features.
net = UNet(spatial_dims=2, in_channels=1, out_channels=CLASSES + FEATURES, channels=(8, 16, 32), strides=(2, 2))
noise = TransitionMatrix(CLASSES)  # learnable, T[m, n] = p(noisy = n | clean = m)
prior = torch.tensor([0.8, 0.1, 0.1])  # shares of the clean classes: a guess is enough to start
optimiser = torch.optim.Adam([*net.parameters(), *noise.parameters()], lr=1e-2)

images, noisy = torch.rand(2, 1, 32, 32), torch.randint(0, CLASSES, (2, 32, 32))
noisy[:, :4] = 255  # nobody judged these rows: no loss sees them
for step in range(5):
    logits, features = net(images).split([CLASSES, FEATURES], dim=1)
    transition, affinity = noise(), Affinity(features)
    refined = refine(logits, affinity)  # like pixels vote, unlike ones object
    class_loss = corrected_cross_entropy(refined.softmax(1), noisy, transition)
    pair_loss = corrected_affinity_loss(affinity, noisy, class_to_affinity(transition, prior))
    loss = class_loss + pair_loss
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(f"step {step}: loss {loss.item():.4f} (pixels {class_loss.item():.4f}, pairs {pair_loss.item():.4f})")
