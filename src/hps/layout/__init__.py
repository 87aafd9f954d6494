"""Layout stage: from what a layout model says to the regions of a page (SPEC C)."""
