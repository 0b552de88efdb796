"""Where the commands of the hub have always been imported from."""
