"""Evidence about a package for a certification file: `intaglio dossier DIR`.

facts       everything, gathered from a package
trace       model node, layer, passes, C function and lines, addresses in the binary; both ways
numerics    bounds of rounding errors, layer by layer
memory      the memory map, and the proof that what lives together does not overlap
timing      bounds of cycles, layer by layer, and what was observed
coverage    the generated C under its tests: statements and branches
page        one HTML file
"""
