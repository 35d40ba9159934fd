"""The one legend of shapes. An axis name means the same thing everywhere, and the test run checks it.

A model reads pictures, cuts them into a grid of patches, strings those out as tokens, lets the tokens look
at each other through heads, and sums up in logits.
"""

from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, "batch channels height width"]
Features = Float[Tensor, "batch _ _ _"]  # feature maps inside the convolutional stem
Grid = Float[Tensor, "batch dim rows cols"]
Tokens = Float[Tensor, "batch tokens dim"]
Kept = Float[Tensor, "batch kept dim"]  # the leading tokens somebody still needs
Heads = Float[Tensor, "batch heads tokens head_dim"]
Queries = Float[Tensor, "batch heads queries head_dim"]
Weights = Float[Tensor, "batch heads queries tokens"]
Angles = Float[Tensor, "patches head_dim"]  # cosines or sines of rotary positions
Table = Float[Tensor, "1 positions dim"]
Resampled = Float[Tensor, "1 resampled dim"]  # the same table, for another grid
Pooled = Float[Tensor, "batch pooled"]
Represented = Float[Tensor, "batch represented"]
Logits = Float[Tensor, "batch classes"]
