"""How exactly a GPU multiplies float32 matrices."""

from __future__ import annotations

import torch


def set_precision(tf32: bool) -> None:
    """float32 matrix products in full precision, or as PyTorch ships (TensorFloat-32 in cuDNN, not in cuBLAS).

    Set before every call and never restored: a submission may have changed it in between.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = tf32
