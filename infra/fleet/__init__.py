"""The program of a fleet: joins existing clusters by MultiKueue."""
