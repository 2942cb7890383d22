"""Kills and failing disks at every moment: afterwards the old or the new state is whole, and the work goes on."""
