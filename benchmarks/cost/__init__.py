"""What hosts carry: costs measured on this machine, a simulation of fleets from them, and how far off it is."""
