"""edgectl, one file per verb."""
