"""References that draw random numbers in train(), such as dropout: what can be compared without equal values."""
