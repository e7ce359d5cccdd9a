"""The lab's stages, one module each."""
