"""Datasets: from files on disk to samples and batches."""

from jcas.data.dataset import SPLITS, Dataset, FileReader, Reader, Record, check
from jcas.data.endovis import read_endovis17, read_endovis18
from jcas.data.files import read_image, read_mask, read_weight, write_image, write_mask
from jcas.data.folder import read_folder
from jcas.data.layout import open_dataset
from jcas.data.loading import EpochSampler, Preparation, epoch_order, evaluation_loader, training_loader

__all__ = [
    "SPLITS",
    "Dataset",
    "EpochSampler",
    "FileReader",
    "Preparation",
    "Reader",
    "Record",
    "check",
    "epoch_order",
    "evaluation_loader",
    "open_dataset",
    "read_endovis17",
    "read_endovis18",
    "read_folder",
    "read_image",
    "read_mask",
    "read_weight",
    "training_loader",
    "write_image",
    "write_mask",
]
