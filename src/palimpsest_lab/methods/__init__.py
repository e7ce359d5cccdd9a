"""Methods of the papers to compare with, each in its own folder."""
