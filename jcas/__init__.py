"""Train medical image segmentation on masks nobody can trust, find the wrong masks, and repair them."""
