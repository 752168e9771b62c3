"""Doors to other libraries, one file each; a library is imported when its door is used, not before."""
