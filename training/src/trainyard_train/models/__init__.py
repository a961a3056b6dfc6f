"""Models: ResNet and GPT, as sequences of layers."""
