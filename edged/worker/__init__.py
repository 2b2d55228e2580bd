"""The disposable process that holds the model."""
