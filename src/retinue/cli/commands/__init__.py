"""One module per command; `retinue.cli.group` names them and imports the one that runs."""
