"""What a checkpoint is on disk: sealed, opened, believed, kept; and Orbax as it is needed here."""
