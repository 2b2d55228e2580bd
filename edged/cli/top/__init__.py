"""`edgectl top`: the box on a full screen."""
