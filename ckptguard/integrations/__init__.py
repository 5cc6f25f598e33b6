"""Where training jobs and launchers plug in; torch only below `dcp`, which a user imports by name."""
