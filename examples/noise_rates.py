"""How noisy are your labels pixel by pixel, and how noisy pair by pair? Put in your own matrix and class shares.

python examples/noise_rates.py
"""

import torch

from jcas.core import affinity_noise_rate, class_noise_rate, class_to_affinity, symmetric

transition = symmetric(4, 0.3)  # T[m, n] = p(noisy = n | clean = m): 30 % of the pixels of each class are wrong
for name, prior in {"balanced": [0.25, 0.25, 0.25, 0.25], "surgical": [0.84, 0.09, 0.02, 0.05]}.items():
    shares = torch.tensor(prior, dtype=torch.float64)
    pixels, pairs = class_noise_rate(transition, shares).item(), affinity_noise_rate(transition, shares).item()
    verdict = "pairs are cleaner" if pairs < pixels else "pairs are noisier"
    print(f"{name}: wrong pixels {pixels:.1%}, wrong pairs {pairs:.1%}: {verdict}")
print("affinity matrix (different, same):", class_to_affinity(transition, shares).numpy().round(3).tolist())
