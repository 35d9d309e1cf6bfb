"""From settings to a folder of results. Nothing is imported here, so that the command line starts at once."""
