"""What pipelines promise."""
